"""Dagster's view of the artifacts: what to show of each, and which checks it has.

Law: nothing here makes data. A view says which columns a person wants to see
first; the checks read what the stage itself found, or count again.
"""
