"""Consequence-based utility in Dagster: candidates, neighbors, rollouts, scores."""

from assets.view import View

VIEW = View(
    previews={
        "ingest": ("name", "question", "answer", "solution", "label"),
        "neighbors": ("problem", "neighbor", "place", "cosine", "given"),
        "rollout": ("text", "answer", "v", "finish", "sample"),
        "score": ("name", "solution", "label", "utility", "rank"),
    },
    gated=frozenset({"score"}),
)
