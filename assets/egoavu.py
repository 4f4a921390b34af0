"""EgoAVU in Dagster: clips, their context graphs, narrations and questions."""

from assets.view import View

VIEW = View(gated=frozenset({"questions"}))
