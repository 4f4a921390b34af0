"""EgoAVU in Dagster: clips, their context graphs, narrations and questions."""

from assets.view import View

VIEW = View(
    previews={
        "ingest": ("clip_id", "start_s", "end_s", "actions", "sounds"),
        "filter": ("clip_id", "mattr", "words", "setting", "actions"),
        "graph": ("clip_id", "edges", "nodes", "left_out"),
        "narrate": ("clip_id", "narration", "start_s", "end_s"),
        "questions": ("task", "question", "options", "answer", "evidence"),
    },
    gated=frozenset({"questions"}),
)
