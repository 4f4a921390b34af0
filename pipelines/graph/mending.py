"""What a killed DVC may leave torn, and the mending of it.

Law: DVC writes `dvc.lock` and its lock of paths in place, so that a SIGKILL can
cut them short and no later command would start. The first is taken back to its
last whole state, which only makes later stages look changed; the second is
taken away. A whole lock of paths still names the killed: their paths are freed, also
when the number (PID) is another process's now, for which DVC would wait. An entry of
the run cache is renamed when it is whole, but DVC reads the newest file of its folder,
and that may be one never renamed, or there may be none yet: file and folder are taken
away. Our own runs replace `dvc.lock`, so that whoever reads it beside them sees the
whole of it. What a person has to decide (a merge conflict) is left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipelines.data.tables import replace

CONFLICT = "<<<<<<<"
CLOCK_S = 2.0  # the kernel tells a process's birth to the second
FIRST = "schema: '2.0'\n"  # line of dvc.lock
HEAD = re.compile(r"^  \S.*:$", re.M)  # of a stage in dvc.lock
WHOLE_RUN = re.compile(r"[0-9a-f]{64}")  # the SHA-256 that an entry of the run cache is renamed to


def keep_lock(root: Path) -> None:
    """Remembers dvc.lock as it is now, if it is whole."""
    text = _read(root / "dvc.lock")
    if _whole(text):
        replace(_kept(root), lambda beside: beside.write_text(text, encoding="utf-8"))


def mend(root: Path, say: Callable[[str], None]) -> None:
    """Mends dvc.lock when it is torn, and says so. The caller holds the writer's lock and DVC's own."""
    path = root / "dvc.lock"
    for place in (path, _kept(root)):
        for left in place.parent.glob(f".{place.name}.*.tmp"):
            left.unlink(missing_ok=True)
    text = _read(path)
    if not path.exists() or _whole(text) or CONFLICT in text:
        return
    last = next((t for t in (_read(_kept(root)), _whole_part(text)) if _whole(t)), None)
    if last is not None:
        replace(path, lambda beside: beside.write_text(last, encoding="utf-8"))
        say("dvc.lock was cut short by a killed process: taken back to its last whole state")
    elif FIRST.startswith(text[: len(FIRST)]) and not HEAD.search(_whole_part(text)):
        path.unlink()
        say("dvc.lock was cut short by a killed process before its first stage: taken away")


def mend_path_lock(tmp: Path, *, hardlink: bool = False) -> None:
    """Takes from DVC's list of who reads and writes what (`tmp`/rwlock) those that are gone.

    A torn one is taken away. Both under DVC's own lock, so that one being written right now is not taken.
    """
    path = tmp / "rwlock"
    if not path.exists() or _gone(path) == set():
        return
    from dvc.lock import LockError, make_lock

    with (
        suppress(LockError),
        make_lock(str(tmp / "rwlock.lock"), tmp_dir=str(tmp), hardlink_lock=hardlink),
    ):
        gone = _gone(path)
        if gone is None:
            path.unlink(missing_ok=True)
        elif gone:
            left = json.dumps(_without(_json(path) or {}, gone))
            replace(path, lambda beside: beside.write_text(left, encoding="utf-8"))


def mend_run_cache(runs: Path) -> None:
    """Takes away what a killed DVC left in its run cache (`runs`). The caller holds DVC's own lock."""
    for folder in runs.glob("*/*"):
        entries = [*folder.iterdir()]
        whole = [e for e in entries if WHOLE_RUN.fullmatch(e.name)]
        for torn in set(entries) - set(whole):
            torn.unlink()
        if not whole:
            folder.rmdir()


@contextmanager
def replacing_lock_files() -> Iterator[None]:
    """Within it, DVC in this process replaces `dvc.lock` instead of writing over it."""
    from dvc import dvcfile
    from dvc.utils.serialize import dumps_yaml, parse_yaml_for_update

    plain = dvcfile.modify_yaml

    @contextmanager
    def replaced(path: str, fs: Any = None) -> Iterator[dict[str, Any]]:
        file = Path(path)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        data = parse_yaml_for_update(text, path)
        yield data
        replace(file, lambda beside: beside.write_text(dumps_yaml(data), encoding="utf-8"))

    dvcfile.modify_yaml = replaced
    try:
        yield
    finally:
        dvcfile.modify_yaml = plain


def has_hashes(stages: Any) -> bool:
    """Whether each stage has a command, and each file it read or made an MD5."""
    try:
        return all(
            entry["cmd"] and all(file["md5"] for key in ("deps", "outs") for file in entry.get(key, []))
            for entry in stages.values()
        )
    except (AttributeError, KeyError, TypeError):  # cut in the middle of an entry
        return False


def _kept(root: Path) -> Path:
    return root / ".headrace" / "dvc.lock"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _whole(text: str) -> bool:
    """Whether it is a lock file to its end: DVC's YAML with its schema, each file's MD5, a newline last.

    One cut between two files or two stages passes: what is missing looks changed, and is made again.
    """
    import yaml

    if not text.endswith("\n") or CONFLICT in text:
        return False
    try:
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return False
    return isinstance(value, dict) and "schema" in value and has_hashes(value.get("stages", {}))


def _whole_part(text: str) -> str:
    """What stands before the last stage of a lock file: what is whole of one that was cut short."""
    heads = [found.start() for found in HEAD.finditer(text)]
    return text[: heads[-1]] if heads else ""


def _json(path: Path) -> dict[str, Any] | None:
    """A whole JSON object, else None."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _gone(path: Path) -> set[int] | None:
    """Processes of the list that ended, or were born after it was written; None when it is torn."""
    import psutil

    listed = _json(path)
    try:
        known = {int(info["pid"]) for infos in _infos(listed or {}) for info in infos}
        written = path.stat().st_mtime
    except (AttributeError, KeyError, TypeError, ValueError, OSError):
        return None
    gone = set()
    for pid in known:
        try:
            if psutil.Process(pid).create_time() > written + CLOCK_S:
                gone.add(pid)
        except psutil.NoSuchProcess:
            gone.add(pid)
        except psutil.Error:  # another user's: alive
            continue
    return None if listed is None else gone


def _infos(listed: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    for paths in listed.values():
        for infos in paths.values():
            yield infos if isinstance(infos, list) else [infos]


def _without(listed: dict[str, Any], gone: set[int]) -> dict[str, Any]:
    """DVC's form of the list: one writer of a path, any number of readers."""
    write = {p: i for p, i in listed.get("write", {}).items() if i["pid"] not in gone}
    read = {p: [i for i in infos if i["pid"] not in gone] for p, infos in listed.get("read", {}).items()}
    return {"write": write, "read": {p: infos for p, infos in read.items() if infos}}
