"""The graph as DVC knows it. Nothing else of the project imports DVC.

Law: `dvc.yaml` is the only declaration, and one process at a time writes.
"""

from pipelines.graph.children import end_children
from pipelines.graph.ignoring import files
from pipelines.graph.lockfile import data_version, lock
from pipelines.graph.running import Ran, run
from pipelines.graph.stages import (
    Stage,
    changed,
    opened,
    stages,
    state,
    upstream,
    within,
)
from pipelines.graph.waiting import writer

__all__ = [
    "Ran",
    "Stage",
    "changed",
    "data_version",
    "end_children",
    "files",
    "lock",
    "opened",
    "run",
    "stages",
    "state",
    "upstream",
    "within",
    "writer",
]
