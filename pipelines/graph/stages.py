"""The stages of the graph, what of them is not fresh, and what dvc.lock says.

Law: `dvc.yaml` is the only declaration; here it is read, by DVC's own resolver.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.graph.mending import has_hashes, mend_path_lock
from pipelines.graph.waiting import BUSY, Busy, by_whom, until_free

if TYPE_CHECKING:
    from dvc.repo import Repo

LOOKS = 5  # at a dvc.lock that is being written


@dataclass(frozen=True)
class Stage:
    """One entry of the graph. `name` is DVC's ("trit.translate@fr"); paths are below the root."""

    name: str
    cmd: str
    desc: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)  # of `params`, as DVC reads them

    @property
    def key(self) -> tuple[str, ...]:
        """("trit", "translate", "fr"): the asset key, and the folder below data/."""
        return tuple(re.split(r"[.@]", self.name))

    @property
    def folder(self) -> str:
        return "/".join(self.key)

    @property
    def item(self) -> str | None:
        """The matrix entry, if any."""
        return self.name.partition("@")[2] or None

    @cached_property
    def code(self) -> tuple[str, ...]:
        """Those of its inputs that are files of the project."""
        return tuple(d for d in self.deps if d.startswith("pipelines/"))

    @property
    def version_path(self) -> str:
        """The out whose MD5 is the stage's data version: its rows, its model, else its first out."""
        for last in ("rows.parquet", "model"):
            for out in self.outs:
                if out.rsplit("/", 1)[-1] == last:
                    return out
        return self.outs[0]


def stages(root: Path) -> list[Stage]:
    """All stages in the order of the graph. Raises ConfigError when dvc.yaml or params.yaml is wrong."""
    with opened(root) as repo:
        return _ordered(repo)


def upstream(all_stages: Sequence[Stage]) -> dict[str, list[str]]:
    """For each stage the names of those whose outs it reads; a folder it reads covers what lies in it."""
    made = {out: s.name for s in all_stages for out in s.outs}
    return {
        s.name: sorted({name for dep in s.deps for out, name in made.items() if within(out, dep)} - {s.name})
        for s in all_stages
    }


def changed(root: Path, *, say: Callable[[str], None] | None = None) -> dict[str, list[str]]:
    """Stages that are not fresh, with the reasons: what DVC says, or which input is not fresh.

    With `say` it waits for a bare `dvc` that is at work; without, that is an error.
    """
    if say is None:
        with opened(root) as repo:
            return _changed(repo)
    return until_free(lambda: _changed_or_busy(root), say)


def state(root: Path) -> tuple[list[Stage], dict[str, list[str]]]:
    """`stages` and `changed` with one look at the repository."""
    with opened(root) as repo:
        return _ordered(repo), _changed(repo)


def lock(root: Path) -> dict[str, Any]:
    """The stages of dvc.lock as plain data; empty before the first run.

    A bare `dvc` writes the file in place: it is read again until it is whole, for a second.
    Raises ConfigError when it stays torn.
    """
    if not (root / "dvc.lock").is_file():
        return {}
    for left in reversed(range(LOOKS)):
        try:
            entries = _yaml(root, "dvc.lock", "take it from version control, or delete it").get("stages", {})
            if has_hashes(entries):
                return dict(entries)
        except ConfigError:
            if not left:
                raise
        time.sleep(1 / LOOKS)
    raise ConfigError("is cut short", where="dvc.lock", cure="headrace run mends it")


def data_version(entry: Mapping[str, Any], stage: Stage) -> str | None:
    """MD5 of the stage's rows (or model) as its dvc.lock entry says."""
    return next((o["md5"] for o in entry.get("outs", []) if o["path"] == stage.version_path), None)


def within(out: str, dep: str) -> bool:
    """Whether two paths below the root are the same, or one lies in the other."""
    return out == dep or out.startswith(f"{dep}/") or dep.startswith(f"{out}/")


@contextmanager
def opened(root: Path) -> Iterator[Repo]:
    """DVC's Repo at `root`; its errors become ours."""
    if not (root / "dvc.yaml").is_file():
        raise ConfigError("no dvc.yaml here", where=str(root), cure="headrace init DIR makes a workspace")
    import logging

    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.ERROR)
    try:
        with Repo(str(root)) as repo:
            if repo.tmp_dir:
                mend_path_lock(Path(repo.tmp_dir))
            yield repo
    except DvcException as e:
        raise ConfigError(first_line(e), where="DVC", cure="see dvc.yaml and params.yaml") from e
    except OSError as e:
        cure = "free some disk space or make the folder writable, then run again"
        raise EnvironmentFault(f"DVC cannot work: {e.strerror or e}", where=str(root), cure=cure) from e


def _ordered(repo: Repo) -> list[Stage]:
    from dvc.dependency.param import ParamsDependency
    from dvc.repo.reproduce import plan_repro

    graph = repo.index.graph
    files: dict[str, Any] = {}
    order = {s: n for n, s in enumerate(plan_repro(graph, sorted(graph, key=name_of)))}
    found = []
    for s in sorted(order, key=order.__getitem__):
        params: list[str] = []
        values: dict[str, Any] = {}
        for d in (d for d in s.deps if isinstance(d, ParamsDependency)):
            path = str(d.def_path)
            if path not in files:
                files[path] = _yaml(Path(repo.root_dir), path, "mend it")
            params += d.params
            values |= {name: _at(files[path], name) for name in d.params}
        deps = [d.def_path for d in s.deps if not isinstance(d, ParamsDependency)]
        meta = s.meta or {}
        found.append(
            Stage(
                name_of(s), str(s.cmd), s.desc or "", tuple(deps), tuple(o.def_path for o in s.outs),
                tuple(params), meta, values,
            )
        )  # fmt: skip
    return found


def _yaml(root: Path, name: str, cure: str) -> dict[str, Any]:
    """A file of DVC's. YAML 1.2 as DVC writes it: `no` is a text there, 1e-05 a number."""
    import yaml

    try:
        value = yaml.load((root / name).read_text(encoding="utf-8"), _yaml12())
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError("is not valid YAML", where=name, cure=cure) from e
    return value if isinstance(value, dict) else {}


@cache
def _yaml12() -> Any:
    import yaml

    class Loader(yaml.CSafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {}
    plain = {
        "null": (r"~|null|Null|NULL|", "~nN\0"),
        "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
        "int": (r"[-+]?[0-9]+", "-+0123456789"),
        "float": (
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
            "-+.0123456789",
        ),
        "merge": (r"<<", "<"),
    }
    for tag, (form, first) in plain.items():
        starts = [c if c != "\0" else "" for c in first]
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{form})$"), starts)
    return Loader


def _at(values: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _changed(repo: Repo) -> dict[str, list[str]]:
    order = _ordered(repo)
    above = upstream(order)
    addressed = {s.addressing: name_of(s) for s in repo.index.stages}
    told: dict[str, list[Any]] = {addressed.get(k, k): v for k, v in repo.status().items()}
    result: dict[str, list[str]] = {}
    for stage in order:
        reasons = [_reason(part) for part in told.get(stage.name, [])]
        reasons += [f"{name} is not fresh" for name in above[stage.name] if name in result]
        if reasons:
            result[stage.name] = reasons
    return result


def _reason(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    return "; ".join(
        f"{what}: {', '.join(f'{k} {v}' for k, v in rows.items()) if isinstance(rows, dict) else rows}"
        for what, rows in part.items()
    )


def _changed_or_busy(root: Path) -> dict[str, list[str]]:
    from dvc.exceptions import DvcException

    with opened(root) as repo:
        try:
            return _changed(repo)
        except DvcException as e:
            if BUSY.search(str(e)):
                raise Busy(by_whom(e)) from e
            raise


def name_of(stage: Any) -> str:
    """A stage's own name; DVC's `addressing` begins with a path when the workspace is not the cwd."""
    return str(getattr(stage, "name", None) or stage.addressing)


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
