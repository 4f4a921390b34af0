"""Versions as dvc.lock tells them, so that Dagster and DVC can never disagree.

Law: whatever a driver reports of a stage is computed from dvc.lock alone: the
version of its data, of its code, and of each input as it was read. So a run in
Dagster and one in a shell report the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.graph import Stage, data_version, files, lock, stages, upstream, within

Key = tuple[str, ...]


def code_version(cmd: str, code: Mapping[str, str], params: Mapping[str, Any]) -> str:
    """Hash of the command, the MD5 of each code file, and the value of each parameter."""
    told = json.dumps([cmd, dict(code), dict(params)], sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def source_key(path: str) -> Key:
    """("raw", "evergreen") for data/raw/evergreen."""
    parts = Path(path).parts
    return tuple(p.replace(".", "_") for p in (parts[1:] if parts[0] == "data" and len(parts) > 1 else parts))


@dataclass(frozen=True)
class Graph:
    """The graph of a workspace with the edges that Dagster draws."""

    root: Path
    stages: tuple[Stage, ...]

    @classmethod
    def read(cls, root: Path) -> Graph:
        """Raises ConfigError when dvc.yaml or params.yaml is wrong."""
        return cls(root, tuple(stages(root)))

    @cached_property
    def by_name(self) -> dict[str, Stage]:
        return {s.name: s for s in self.stages}

    @cached_property
    def above(self) -> dict[str, list[str]]:
        """Names of the stages whose outs a stage reads."""
        return upstream(self.stages)

    @cached_property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """For each stage the inputs that no stage makes and that are no code: data/raw/evergreen."""
        made = [out for s in self.stages for out in s.outs]
        return {
            s.name: tuple(
                d for d in s.deps if not d.startswith("pipelines/") and not any(within(o, d) for o in made)
            )
            for s in self.stages
        }

    @cached_property
    def source_paths(self) -> tuple[str, ...]:
        return tuple(sorted({p for paths in self.sources.values() for p in paths}))

    def readers(self, source: str) -> list[str]:
        """Stages that read a source."""
        return [s.name for s in self.stages if source in self.sources[s.name]]

    def below(self, names: Iterable[str]) -> list[str]:
        """The stages and all that depends on them, in the order of the graph."""
        found = set(names)
        for s in self.stages:
            if found & set(self.above[s.name]):
                found.add(s.name)
        return [s.name for s in self.stages if s.name in found]

    def code_now(self, stage: Stage) -> str:
        """The code version as the files and parameters are now."""
        code = {path: fingerprint(self.root / path) for path in stage.code}
        return code_version(stage.cmd, code, stage.values)


def locked_code(entry: Mapping[str, Any]) -> str:
    """The code version that made what a dvc.lock entry describes."""
    code = {d["path"]: d["md5"] for d in entry.get("deps", []) if d["path"].startswith("pipelines/")}
    values: dict[str, Any] = {}
    for told in dict(entry.get("params") or {}).values():
        values |= told
    return code_version(str(entry.get("cmd")), code, values)


def locked_inputs(graph: Graph, stage: Stage, locked: Mapping[str, Any]) -> dict[Key, str]:
    """The version of each input of a stage as it was read, by asset key.

    An input that has changed since has a version that no asset has now.
    """
    read = {d["path"]: str(d["md5"]) for d in locked[stage.name].get("deps", []) if d.get("md5")}
    found: dict[Key, str] = {source_key(p): read[p] for p in graph.sources[stage.name] if p in read}
    for name in graph.above[stage.name]:
        version = _as_read(graph, graph.by_name[name], read, locked.get(name, {}))
        if version is not None:
            found[graph.by_name[name].key] = version
    return found


def _as_read(graph: Graph, above: Stage, read: Mapping[str, str], entry: Mapping[str, Any]) -> str | None:
    """Version of the stage above that was read; None when nothing of it is among what was read."""
    if above.version_path in read:
        return read[above.version_path]
    outs = {o["path"]: str(o["md5"]) for o in entry.get("outs", [])}
    now = data_version(entry, above)
    version: str | None = None
    for path, md5 in read.items():
        if any(within(out, path) for out in above.outs):
            same = md5 == (outs[path] if path in outs else fingerprint(graph.root / path))
            if not same or now is None:
                return f"earlier:{md5}"
            version = now
    return version


def inputs_tags(inputs: Mapping[Key, str]) -> dict[str, str]:
    """Dagster's tags for the version of each input. The pointer is not known and must be there."""
    import dagster as dg
    from dagster._core.definitions.data_version import (
        NULL_EVENT_POINTER,
        get_input_data_version_tag,
        get_input_event_pointer_tag,
    )

    tags = {}
    for key, version in sorted(inputs.items()):
        tags[get_input_data_version_tag(dg.AssetKey(list(key)))] = version
        tags[get_input_event_pointer_tag(dg.AssetKey(list(key)))] = NULL_EVENT_POINTER
    return tags


def provenance(graph: Graph, stage: Stage, locked: Mapping[str, Any]) -> dict[str, str] | None:
    """All that Dagster keeps of a materialisation's origin; None when the stage was never made."""
    entry = locked.get(stage.name)
    version = None if entry is None else data_version(entry, stage)
    if entry is None or version is None:
        return None
    return {
        "dagster/data_version": version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": locked_code(entry),
        **inputs_tags(locked_inputs(graph, stage, locked)),
    }


# -- the content of files and folders, as DVC hashes it ----------------------------------------

_SEEN: dict[tuple[str, int, int, int], str] = {}  # path, size, mtime_ns, inode -> MD5


def file_md5(path: Path) -> str:
    """MD5 of a file's content, "" when it is not there; the same stat is not read twice."""
    try:
        stat = path.stat()
    except OSError:
        return ""
    seen = (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)
    if seen not in _SEEN:
        digest = hashlib.md5(usedforsecurity=False)
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        _SEEN[seen] = digest.hexdigest()
    return _SEEN[seen]


def fingerprint(path: Path) -> str:
    """MD5 of a file, or of a folder's listing as in dvc.lock ("….dir"); "" when it is not there."""
    if not path.is_dir():
        return file_md5(path)
    listing = [{"md5": file_md5(p), "relpath": p.relative_to(path).as_posix()} for p in files(path)]
    listing.sort(key=lambda entry: entry["relpath"])
    told = json.dumps(listing, sort_keys=True).encode()
    return f"{hashlib.md5(told, usedforsecurity=False).hexdigest()}.dir"


def locked_graph(root: Path) -> tuple[Graph, dict[str, Any]]:
    """The graph and what dvc.lock says of it."""
    return Graph.read(root), lock(root)


def names_to_keys(graph: Graph, names: Sequence[str]) -> list[Key]:
    return [graph.by_name[n].key for n in names]
