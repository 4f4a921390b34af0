"""Consequence-based utility in Dagster: candidates, neighbors, rollouts, scores."""

from assets.view import View

VIEW = View(gated=frozenset({"score"}))
