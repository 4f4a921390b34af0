"""Consequence-based utility in Dagster: candidates, neighbors, rollouts, scores."""

from assets.view import View

VIEW = View(
    previews={
        "ingest": ("name", "question", "answer", "solution", "label"),
        "neighbors": ("problem", "neighbor", "place", "cosine", "given", "shared_concepts"),
        "rollout": ("text", "answer", "v", "finish", "sample"),
        "score": ("name", "solution", "label", "utility", "low", "high", "lift", "rank"),
    },
    gated=frozenset({"score"}),
)
