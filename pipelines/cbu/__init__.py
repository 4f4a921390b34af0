"""Consequence-based utility of candidate solutions (arXiv 2602.06291)."""
