"""TRIT in Dagster: problems, their translations, the reasoning on them, the deferred reward."""

from assets.view import View

VIEW = View(gated=frozenset({"feedback"}))
