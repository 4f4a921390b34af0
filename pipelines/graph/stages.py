"""The stages of the graph, and what of them is not fresh.

Law: `dvc.yaml` is the only declaration; here it is read, by DVC's own resolver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.graph.lockfile import read_yaml
from pipelines.graph.mending import mend_path_lock
from pipelines.graph.waiting import BUSY, Busy, by_whom, to_stderr, until_free

if TYPE_CHECKING:
    from dvc.repo import Repo


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
    with opened(root) as repo, still(repo):
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
    from dvc.repo import lock_repo

    def look() -> dict[str, list[str]]:
        with opened(root) as repo, nullcontext() if say is None else busy(), lock_repo(repo):
            return _changed(repo, _ordered(repo))

    return look() if say is None else until_free(look, say)


def state(root: Path, say: Callable[[str], None] = to_stderr) -> tuple[list[Stage], dict[str, list[str]]]:
    """`stages` and `changed` with one look at the repository, also while stages are being made.

    Those are not fresh. It waits for a bare `dvc` that holds DVC's own lock, and says so.
    """
    from dvc.repo import lock_repo

    def look() -> tuple[list[Stage], dict[str, list[str]]]:
        with opened(root) as repo, busy(), lock_repo(repo):
            order = _ordered(repo)
            return order, _changed(repo, order, at_work=True)

    return until_free(look, say)


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
                mend_path_lock(Path(repo.tmp_dir), hardlink=repo.config["core"].get("hardlink_lock", False))
            yield repo
    except DvcException as e:
        cure = "headrace run mends it" if "dvc.lock" in str(e) else "see dvc.yaml and params.yaml"
        raise ConfigError(first_line(e), where="DVC", cure=cure) from e
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
                files[path] = read_yaml(Path(repo.root_dir), path, "mend it")
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


def _at(values: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _changed(repo: Repo, order: Sequence[Stage], *, at_work: bool = False) -> dict[str, list[str]]:
    """`at_work`: a stage that is being made, or reads what is, is not fresh; else that is an error."""
    from dvc.lock import LockError

    above = upstream(order)
    told: dict[str, list[Any]] = {}
    for s in repo.index.stages:
        try:
            told[name_of(s)] = [part for said in s.status(check_updates=True).values() for part in said]
        except LockError:
            if not at_work:
                raise
            told[name_of(s)] = ["it, or what it reads, is being made"]
    result: dict[str, list[str]] = {}
    for stage in order:
        reasons = [_reason(part) for part in told[stage.name]]
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


@contextmanager
def still(repo: Repo) -> Iterator[None]:
    """Holds DVC's own lock, under which dvc.lock is written; goes without where it cannot be had soon."""
    from dvc.lock import LockError
    from dvc.repo import lock_repo

    with ExitStack() as held:
        with suppress(LockError):
            held.enter_context(lock_repo(repo))
        yield


@contextmanager
def busy() -> Iterator[None]:
    """DVC's word that another holds what is needed, as Busy."""
    from dvc.exceptions import DvcException

    try:
        yield
    except DvcException as e:
        if BUSY.search(str(e)):
            raise Busy(by_whom(e)) from e
        raise


def name_of(stage: Any) -> str:
    """A stage's own name; DVC's `addressing` begins with a path when the workspace is not the cwd."""
    return str(getattr(stage, "name", None) or stage.addressing)


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
