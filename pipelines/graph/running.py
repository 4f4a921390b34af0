"""Running stages through DVC, in process.

Law: an interrupted run ends its stage's processes before it ends itself, and
DVC's lock is free afterwards.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.environment import variables
from pipelines.errors import ConfigError, StageError, nearest
from pipelines.graph.children import end_children, terminable
from pipelines.graph.mending import keep_lock, mend, mend_run_cache, replacing_lock_files
from pipelines.graph.reason import heard, listening
from pipelines.graph.stages import first_line, name_of, opened, still
from pipelines.graph.waiting import BUSY, Busy, by_whom, dvc_lock, until_free, writer

if TYPE_CHECKING:
    from dvc.repo import Repo


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
    with (
        writer(root, who, say), _stage_output(output), listening(root), replacing_lock_files(),
        chdir(root),  # as DVC wants it
    ):  # fmt: skip
        return until_free(lambda: _guarded(root, list(targets), single, force, say), say)


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
    ours = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with variables(PATH=ours), terminable():
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


def _reproduce(
    root: Path, targets: list[str], single: bool, force: bool, say: Callable[[str], None], ran: Ran
) -> None:
    from dvc.exceptions import DvcException
    from dvc.repo.reproduce import _reproduce_stage

    with dvc_lock(root):
        mend(root, say)
    with opened(root) as repo:
        with still(repo):
            _known(repo, targets)
            total = len(repo.index.stages)

        def one(stage: Any, **kwargs: Any) -> Any:
            if not ran.looked_at:  # now that DVC holds its lock
                mend_run_cache(Path(repo.stage_cache.cache_dir))
                repo.lock._wait = True  # a stage that has run must not run again since a bare dvc is slow
            ran.looked_at.append(name_of(stage))
            if not stage.changed() and not kwargs.get("force"):
                return None
            stage.changed = lambda *_, **__: True  # it was looked at; hashing all again takes as long
            say(f"[{len(ran.looked_at)}/{total}] {name_of(stage)}")
            made = _reproduce_stage(stage, **kwargs)
            if made is not None:
                ran.made.append(name_of(stage))
                keep_lock(root)
            return made

        try:
            repo.reproduce(targets or None, single_item=single, force=force, repro_fn=one)
        except DvcException as e:
            _translate(e, ran, heard(root), root)


def _translate(error: BaseException, ran: Ran, reason: str, root: Path) -> None:
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for e in chain:
        if BUSY.search(str(e)):
            raise Busy(by_whom(e)) from error
    name = ran.looked_at[-1] if ran.looked_at else "the graph"
    if reason:
        raise StageError(f"stage {name} failed: {reason.removeprefix(f'{name}: ')}") from error
    if isinstance(chain[-1], FileNotFoundError) and chain[-1].filename:  # DVC looked for an input
        missing = os.path.relpath(chain[-1].filename, root)
        given = missing.startswith(("data/raw/", "pipelines/"))
        cure = "put it back" if given else "headrace run makes it first, without --single"
        raise StageError(f"stage {name} lacks its input {missing}", cure=cure) from error
    raise StageError(
        f"stage {name} failed: {first_line(chain[min(1, len(chain) - 1)])}",
        cure="its reason stands above; run again after mending it",
    ) from error


def _known(repo: Repo, targets: Sequence[str]) -> None:
    names = {name_of(s) for s in repo.index.stages}
    known = names | {n.partition("@")[0] for n in names}
    for target in targets:
        if target not in known:
            raise ConfigError(f"unknown stage {target!r}", cure=nearest(target, known))
