"""Evaluation jobs and the report: stages like any other."""
