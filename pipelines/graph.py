"""The graph as DVC knows it: its stages, what changed, and the running of them.

Law: `dvc.yaml` is the only declaration, and one process at a time writes. Ours
wait for each other and for a bare `dvc repro`, and say for whom. Nothing else
of the project imports DVC.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipelines.errors import ConfigError, EnvironmentFault, StageError, nearest

if TYPE_CHECKING:
    from dvc.repo import Repo

T = TypeVar("T")
WAIT_S = 1.0
BUSY = re.compile(r"busy, it is being blocked|Unable to acquire lock|being blocked by", re.I)


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
    return _until_free(lambda: _changed_or_busy(root), say)


def state(root: Path) -> tuple[list[Stage], dict[str, list[str]]]:
    """`stages` and `changed` with one look at the repository."""
    with opened(root) as repo:
        return _ordered(repo), _changed(repo)


def lock(root: Path) -> dict[str, Any]:
    """The stages of dvc.lock as plain data; empty before the first run."""
    if not (root / "dvc.lock").is_file():
        return {}
    value = _yaml(root, "dvc.lock", "take it from version control, or delete it")
    return dict(value.get("stages") or {})


def data_version(entry: Mapping[str, Any], stage: Stage) -> str | None:
    """MD5 of the stage's rows (or model) as its dvc.lock entry says."""
    return next((o["md5"] for o in entry.get("outs", []) if o["path"] == stage.version_path), None)


@dataclass
class Ran:
    """What a run did: stages in the order they were looked at."""

    looked_at: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)


def run(
    root: Path,
    targets: Sequence[str] = (),
    *,
    who: str,
    single: bool = False,
    force: bool = False,
    say: Callable[[str], None] = print,
    output: Callable[[str], None] | None = None,
) -> Ran:
    """Brings the targets (all when none are given) and what they need up to date.

    `single` runs the targets alone. `output` gets each line that a stage prints,
    instead of this process's own standard output. Waits for another writer.
    Raises StageError when a stage fails; on SIGTERM or Ctrl-C ends the stage's
    processes first.
    """
    root = root.resolve()
    with writer(root, who, say), _stage_output(output), chdir(root):  # DVC runs stages from within only
        return _until_free(lambda: _guarded(root, list(targets), single, force, say), say)


@contextmanager
def writer(root: Path, who: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """The one writer's lock of this workspace; ends with the process, however it ends."""
    import fcntl

    path = root / ".headrace" / "writer.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held until the end of the block
    except OSError as e:
        raise EnvironmentFault(f"cannot take the lock: {e.strerror}", where=str(path)) from e
    with handle:
        said = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    handle.seek(0)
                    say(f"waiting for {handle.read().strip() or 'another run'}")
                    said = True
                time.sleep(WAIT_S / 4)
        handle.seek(0)
        handle.truncate()
        handle.write(f"{who} (PID {os.getpid()})\n")
        handle.flush()
        yield


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
            yield repo
    except DvcException as e:
        raise ConfigError(_first_line(e), where="DVC", cure="see dvc.yaml and params.yaml") from e


def _ordered(repo: Repo) -> list[Stage]:
    from dvc.dependency.param import ParamsDependency
    from dvc.repo.reproduce import plan_repro

    graph = repo.index.graph
    files: dict[str, Any] = {}
    order = {s: n for n, s in enumerate(plan_repro(graph, sorted(graph, key=_name)))}
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
                _name(s), str(s.cmd), s.desc or "", tuple(deps), tuple(o.def_path for o in s.outs),
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
    addressed = {s.addressing: _name(s) for s in repo.index.stages}
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


def within(out: str, dep: str) -> bool:
    """Whether two paths below the root are the same, or one lies in the other."""
    return out == dep or out.startswith(f"{dep}/") or dep.startswith(f"{out}/")


def _until_free(act: Callable[[], T], say: Callable[[str], None]) -> T:
    """Runs `act` again while a bare `dvc` holds DVC's own locks."""
    said = False
    while True:
        try:
            return act()
        except _Busy as e:
            if not said:
                say(f"waiting for a dvc command: {e}")
                said = True
            time.sleep(WAIT_S)


class _Busy(Exception):
    pass


def _changed_or_busy(root: Path) -> dict[str, list[str]]:
    from dvc.exceptions import DvcException

    with opened(root) as repo:
        try:
            return _changed(repo)
        except DvcException as e:
            if BUSY.search(str(e)):
                raise _Busy(_by_whom(e)) from e
            raise


@contextmanager
def _stage_output(output: Callable[[str], None] | None) -> Iterator[None]:
    """Hands what stages print to `output`, line by line; theirs alone, not this process's own."""
    if output is None:
        yield
        return
    from dvc.stage import run as dvc_run

    read_end, write_end = os.pipe()
    plain = dvc_run.prepare_kwargs

    def lines() -> None:
        with open(read_end, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                output(line.rstrip("\n"))

    def to_pipe(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**plain(*args, **kwargs), "stdout": write_end, "stderr": write_end}

    reader = threading.Thread(target=lines, name="stage output", daemon=True)
    reader.start()
    dvc_run.prepare_kwargs = to_pipe
    try:
        yield
    finally:
        dvc_run.prepare_kwargs = plain
        os.close(write_end)
        reader.join(5)  # something that outlives its stage may hold the other end


def _guarded(root: Path, targets: list[str], single: bool, force: bool, say: Callable[[str], None]) -> Ran:
    """Reproduces in a thread of its own: DVC's handling of signals would outlive its stage otherwise."""
    ran, failure = Ran(), list[BaseException]()

    def work() -> None:
        try:
            _reproduce(root, targets, single, force, say, ran)
        except BaseException as e:  # handed to the waiting thread
            failure.append(e)

    thread = threading.Thread(target=work, name="dvc", daemon=True)
    with _terminable():
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.2)
        except BaseException:
            end_children()
            thread.join(10)
            raise
    if failure:
        raise failure[0]
    return ran


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM as an exception in the main thread, so that what was started is ended."""
    import signal

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_children() -> None:
    """Ends all processes below this one: the stage, its shell, its model server."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with _gone():
            child.terminate()
    _, alive = psutil.wait_procs(children, timeout=3)
    for child in alive:
        with _gone():
            child.kill()


@contextmanager
def _gone() -> Iterator[None]:
    import psutil

    try:
        yield
    except psutil.NoSuchProcess:
        return


def _reproduce(
    root: Path, targets: list[str], single: bool, force: bool, say: Callable[[str], None], ran: Ran
) -> None:
    from dvc.exceptions import DvcException
    from dvc.repo.reproduce import _reproduce_stage

    bin_folder = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != bin_folder:
        os.environ["PATH"] = f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}"
    with opened(root) as repo:
        _known(repo, targets)
        total = len(repo.index.stages)

        def one(stage: Any, **kwargs: Any) -> Any:
            ran.looked_at.append(_name(stage))
            if stage.changed() or kwargs.get("force"):
                say(f"[{len(ran.looked_at)}/{total}] {_name(stage)}")
            made = _reproduce_stage(stage, **kwargs)
            if made is not None:
                ran.made.append(_name(stage))
            return made

        try:
            repo.reproduce(targets or None, single_item=single, force=force, repro_fn=one)
        except DvcException as e:
            _translate(e, ran)


def _translate(error: BaseException, ran: Ran) -> None:
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for e in chain:
        if BUSY.search(str(e)):
            raise _Busy(_by_whom(e)) from error
    name = ran.looked_at[-1] if ran.looked_at else "the graph"
    raise StageError(
        f"stage {name} failed: {_first_line(chain[-1])}",
        cure="its reason stands above; run again after mending it",
    ) from error


def _name(stage: Any) -> str:
    """A stage's own name; DVC's `addressing` begins with a path when the workspace is not the cwd."""
    return str(getattr(stage, "name", None) or stage.addressing)


def _by_whom(error: BaseException) -> str:
    """What is busy and the PID and command that hold it; without DVC's advice to remove the lock."""
    return " ".join(str(error).split("If there are no processes")[0].split())


def _known(repo: Repo, targets: Sequence[str]) -> None:
    names = {_name(s) for s in repo.index.stages}
    known = names | {n.partition("@")[0] for n in names}
    for target in targets:
        if target not in known:
            raise ConfigError(f"unknown stage {target!r}", cure=nearest(target, known))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
