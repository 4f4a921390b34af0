"""What of a response store workspaces need: what rows and locks reach, and what stages may yet use.

Law: an answer is needed that a row in the workspace reaches, or a row that dvc.lock names and DVC's cache
has. Of a stage that is not fresh, or whose locked rows are nowhere to be read, every answer is needed that
was asked for it, for no row shows yet which of them it will use; and where it embeds, every vector.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROWS, REJECTED, EMBEDDED = "rows.parquet", "rejected.parquet", "embedded.parquet"


@dataclass
class Needed:
    """Keys of answers and vectors; stages of which every answer is; whether every vector is."""

    answers: set[str] = field(default_factory=set)
    embeddings: set[str] = field(default_factory=set)
    stages: set[str] = field(default_factory=set)
    every_vector: bool = False


def needed(places: Sequence[Path], say: Callable[[str], None]) -> Needed:
    """By the workspaces `places`. Raises ConfigError, InputError for an artifact that cannot be read."""
    from pipelines import graph
    from pipelines.lineage import reached

    found = Needed()
    for place in places:
        open_ = set(graph.changed(place, say=say))
        found.every_vector |= any(
            s.name in open_ and any(o.endswith(EMBEDDED) for o in s.outs) for s in graph.stages(place)
        )
        with tempfile.TemporaryDirectory() as name:
            for stage, out in _laid(place, graph.lock(place), open_, Path(name)):
                open_.add(stage)
                found.every_vector |= out.endswith(EMBEDDED)
            for data in (place / "data", Path(name) / "data"):
                more = reached(data)
                found.answers |= more.answers.keys()
                found.embeddings |= more.embeddings
        found.stages |= open_
    return found


def _laid(place: Path, lock: Mapping[str, Any], stale: set[str], aside: Path) -> Iterator[tuple[str, str]]:
    """Lays `aside` what the lock names and the workspace may lack; yields (stage, out) of what is lost."""
    from pipelines import graph

    outs = [(name, out) for name, entry in lock.items() for out in entry.get("outs", [])]
    wanted = [
        (name, out["path"], out.get("md5", ""))
        for name, out in outs
        if Path(out["path"]).name in (ROWS, REJECTED, EMBEDDED)
        and (name in stale or not (place / out["path"]).is_file())
    ]
    if not wanted:
        return
    with graph.opened(place) as repo:
        for name, path, md5 in wanted:
            cached = Path(repo.cache.local.oid_to_path(md5)) if md5 else None
            if cached is None or not cached.is_file():
                yield name, path
                continue
            there = aside / path
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(cached.absolute())
