"""TRIT in Dagster: problems, their translations, the reasoning on them, the deferred reward."""

from assets.view import View

VIEW = View(
    previews={
        "ingest": ("question", "language", "answer", "role"),
        "translate": ("english", "translation", "answer", "sample"),
        "reason": ("question", "response", "given", "gold", "reward"),
        "feedback": ("text", "valid", "acc", "reward", "advantage"),
    },
    gated=frozenset({"feedback"}),
)
