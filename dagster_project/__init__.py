"""Dagster over the graph that dvc.yaml declares.

Law: an asset is a stage, and a materialisation is a `dvc repro` of it.
"""
