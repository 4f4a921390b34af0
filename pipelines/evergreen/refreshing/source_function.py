"""A Python callable as a source of answers: called question by question, its faults typed.

Law: whatever the callable raises or returns, and however long it takes, is the end of one question, never
a traceback; what it answered is durable before the next call, so that a killed act calls it for the rest
alone. When it fails many times in a row the rest is not asked.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.data.rows import digest
from pipelines.errors import ConfigError
from pipelines.evergreen.refreshing.foreign import Fault, called
from pipelines.evergreen.refreshing.journal import Journal
from pipelines.evergreen.refreshing.observations import cannot_be_noted
from pipelines.evergreen.refreshing.source import NO_ANSWER, Asked, Requests, Told
from pipelines.pace import Sight
from pipelines.progress import Progress

Function = Callable[[str, str, date], Any]  # question, language, day -> answer, None if it knows none
MOST_FAILURES = 20  # in a row: the source is out, not the question


class FunctionSource:
    """Calls `function(question, language, day)`; `origin` names it. `journal` keeps its answers.

    limit_s: seconds that a call may take; 0 for any.
    """

    free = False

    def __init__(
        self, function: Function, origin: str, journal: Journal | None = None, limit_s: float = 0.0
    ) -> None:
        self._call, self.origin, self._journal, self._limit_s = function, origin, journal, limit_s
        self.requests = Requests()
        self._failed = 0

    def ask(self, asked: Sequence[Asked]) -> Iterator[Told]:
        if not asked:
            return
        done = in_a_row = 0

        def look() -> Sight:
            sent, kept = self.requests.sent, self.requests.kept
            return Sight(done, len(asked), sent, kept, self._failed)

        with Progress("refresh", "answers", look):
            for a in asked:
                told = self._one(a) if in_a_row < MOST_FAILURES else _not_asked(a)
                in_a_row = in_a_row + 1 if told.failed else 0
                self._failed += told.failed
                done += 1
                yield told
        if self._journal is not None:
            self._journal.close()

    def noted(self) -> None:
        if self._journal is not None:
            self._journal.forget()

    def _one(self, a: Asked) -> Told:
        key = digest("answer", self.origin, a.question, a.language, a.day.isoformat())
        kept = None if self._journal is None else self._journal.get(key)
        if kept is not None:
            self.requests.kept += 1
            return Told(a, kept)
        self.requests.sent += 1
        try:
            said = called(self._call, a.question, a.language, a.day, limit_s=self._limit_s)
        except Fault as e:
            return Told(a, reason="source_failed", detail=str(e), failed=True)
        told = _read(a, said)
        if told.answer is not None and self._journal is not None:
            self._journal.put(key, told.answer)
        return told


def load_function(
    name: str, root: Path, setting: str, arguments: int, limit_s: float = 0.0
) -> Callable[..., Any]:
    """The function "module:function", looked for in the workspace first. Raises ConfigError.

    `setting` is the parameter that names it; `arguments`, how many it takes; `limit_s`, how long its
    module may take to load.
    """
    where = f"params.yaml: {setting}"
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise ConfigError(f"{name!r} names no function", where=where, cure='write it as "module:function"')
    try:
        found: Any = called(_attribute, module_name, attribute, root, limit_s=limit_s)
    except Fault as e:
        cure = "it is looked for in the workspace, then among the installed packages"
        raise ConfigError(f"{name!r} cannot be loaded: {e}", where=where, cure=cure) from e
    if not callable(found):
        raise ConfigError(f"{name!r} is not callable but {type(found).__name__}", where=where)
    fits = True
    with suppress(ValueError):  # a function of C tells no signature
        try:
            inspect.signature(found).bind(*range(arguments))
        except TypeError:
            fits = False
    if not fits:
        takes = "question, language, day" if arguments == 3 else "query, day"
        raise ConfigError(f"{name!r} does not take {arguments} arguments", where=where, cure=takes)
    return found  # type: ignore[no-any-return]


def _attribute(module: str, path: str, root: Path) -> Any:
    found = _module(module, root)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _module(name: str, root: Path) -> Any:
    """A module with the workspace first on the path, for the time of the import.

    A file of the workspace is run anew, and kept from other importers: another workspace in this process may
    have one of the same name, and this one may have changed.
    """
    own = root / f"{name}.py"
    sys.path.insert(0, str(root))
    try:
        importlib.invalidate_caches()
        if not own.is_file():
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, own)
        if spec is None or spec.loader is None:
            raise ImportError(f"{own.name} is no module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        with suppress(ValueError):
            sys.path.remove(str(root))


def _read(a: Asked, said: object) -> Told:
    """What a return value means."""
    if said is None or (isinstance(said, str) and not said.strip()):
        return Told(a, reason=NO_ANSWER)
    if inspect.iscoroutine(said):
        said.close()
        return Told(a, reason="wrong_type", detail="a coroutine: the function must not be async", failed=True)
    if not isinstance(said, str):
        what = f"{type(said).__name__}, expected str or None"
        return Told(a, reason="wrong_type", detail=what, failed=True)
    reason, detail = cannot_be_noted(said)
    if reason:
        return Told(a, reason=reason, detail=detail, failed=True)
    return Told(a, " ".join(said.split()))


def _not_asked(a: Asked) -> Told:
    detail = f"the source failed {MOST_FAILURES} times in a row"
    return Told(a, reason="not_asked", detail=detail, failed=True)
