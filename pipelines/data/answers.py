"""Answers of mathematics: found in a text, written canonically, compared.

Law: a comparison that could not be carried out is UNVERIFIED, never WRONG. The
computer algebra runs in a process that can be killed, and a kill costs its own
item only.
"""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
from enum import StrEnum
from fractions import Fraction
from types import TracebackType

from pipelines.data import answer_worker
from pipelines.data.answer_text import extract, spell
from pipelines.data.answer_values import Value, alternatives, checkable, clean, decide, prose, read
from pipelines.data.plain_numbers import ascii_digits, number
from pipelines.errors import EnvironmentFault

__all__ = ["Verdict", "Verifier", "canonical", "checkable", "extract", "mentions", "share"]

LONGEST = 10_000  # characters of an answer; a longer one is no final answer
_NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?(?![\d])")
START_S = 120.0  # for the import of the algebra on a busy machine


class Verdict(StrEnum):
    """What a comparison found."""

    RIGHT = "right"
    WRONG = "wrong"
    UNVERIFIED = "unverified"  # the check could not decide: time, memory, or not understood


def canonical(answer: str, *, language: str = "en") -> str:
    """One spelling for equal plain answers ("8.0", "$8$" are "8"); other answers cleaned of marks."""
    text = clean(answer)
    value = read(text, language)
    return " ".join(text.split()) if value is None else _spelled(value)


def _spelled(value: Value) -> str:
    content = value.content
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, Fraction):
        return spell(content.numerator, content.denominator) + ("%" if value.unit == "%" else "")
    assert isinstance(content, frozenset)
    if value.kind == "set":
        return f"{{{', '.join(_end(v) for v in sorted(content))}}}"
    pieces = sorted(content, key=lambda p: (_order(p[1]), _order(p[2]), p[0], p[3]))
    return " \\cup ".join(f"{p[0]}{_end(p[1])}, {_end(p[2])}{p[3]}" for p in pieces)


def _order(end: Fraction | str) -> float:
    return float(end.replace("oo", "inf")) if isinstance(end, str) else float(end)


def _end(value: Fraction | str) -> str:
    return value if isinstance(value, str) else spell(value.numerator, value.denominator)


def fast(given: str, gold: str, language: str = "en") -> Verdict | None:
    """The verdict where plain Python can prove it, else None."""
    if not given.strip() or not gold.strip():
        return Verdict.WRONG if gold.strip() else Verdict.UNVERIFIED
    if len(given) > LONGEST or len(gold) > LONGEST:
        return Verdict.UNVERIFIED
    verdicts = [_fast_one(given, one, language) for one in alternatives(gold)]
    if Verdict.RIGHT in verdicts:
        return Verdict.RIGHT
    return Verdict.WRONG if all(v is Verdict.WRONG for v in verdicts) else None


def _fast_one(given: str, gold: str, language: str) -> Verdict | None:
    a, b = clean(given), clean(gold)
    if a.casefold().split() == b.casefold().split():
        return Verdict.RIGHT
    one, other = read(a, language), read(b)
    if one is None and other is not None and not any(c.isdigit() or c in "\\^()" for c in a):
        return Verdict.WRONG  # words in place of a number, a set or a yes
    same = None if one is None or other is None else decide(one, other)
    return None if same is None else Verdict.RIGHT if same else Verdict.WRONG


def share(one: str, other: str) -> bool:
    """Whether two answers, each with its alternatives, are plainly the same."""
    return any(fast(spelling, other) is Verdict.RIGHT for spelling in alternatives(one))


def mentions(text: str, answer: str) -> bool:
    """Whether a text states an answer: as a number among its numbers, else word for word."""
    for one in alternatives(answer):
        value = read(clean(one))
        if value is not None and value.kind == "yesno":
            continue  # a "no" in a text says nothing
        if value is not None and value.kind == "number":
            if any(number(n) == value.content for n in _NUMBERS.findall(ascii_digits(text))):
                return True
        elif len(one) > 1 and "".join(one.split()) in "".join(text.split()):
            return True
    return False


class Verifier:
    """Compares answers; holds one worker process, started when first needed. A context manager.

    cpu_s: CPU seconds an item may take; wall_s: seconds after which a worker that
    sleeps is killed all the same; memory_mb: address space of the worker.
    """

    def __init__(self, *, cpu_s: float = 5.0, wall_s: float = 60.0, memory_mb: int = 2048) -> None:
        self.cpu_s, self.wall_s, self.memory_mb = cpu_s, wall_s, memory_mb
        self.started = 0  # workers started, restarts included
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def compare(self, given: str, gold: str, *, language: str = "en") -> Verdict:
        """Whether `given` answers as `gold` does. `language`: how `given` writes its numbers.

        `gold` may offer alternatives ("C(10, 5), or equivalently 252"): one is enough.
        Raises EnvironmentFault when no worker can be started.
        """
        known = fast(given, gold, language)
        if known is not None:
            return known
        verdicts = [
            _fast_one(given, one, language) or self._ask(clean(given), clean(one))
            for one in alternatives(gold)
        ]
        for verdict in (Verdict.RIGHT, Verdict.UNVERIFIED):
            if verdict in verdicts:
                return verdict
        return Verdict.WRONG

    def close(self) -> None:
        """Ends the worker, if one runs."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.communicate()
            self._worker = None

    def _ask(self, given: str, gold: str) -> Verdict:
        if prose(given) or prose(gold):
            return Verdict.UNVERIFIED
        worker = self._worker or self._start()
        line = json.dumps({"given": given, "gold": gold, "cpu_s": self.cpu_s}) + "\n"
        try:
            assert worker.stdin is not None
            worker.stdin.write(line.encode())
            worker.stdin.flush()
            answer = self._line(worker, self.wall_s)
        except BrokenPipeError:
            answer = None
        if answer is None:
            self.close()
            return Verdict.UNVERIFIED
        return Verdict(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", answer_worker.__file__, str(self.memory_mb)]
        self._worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.started += 1
        if self._line(self._worker, START_S) != "ready":
            self.close()
            raise EnvironmentFault(
                "the process that compares answers does not start",
                where="pipelines/data/answer_worker.py",
                cure="make setup installs math-verify; see that memory is free",
            )
        return self._worker

    @staticmethod
    def _line(worker: subprocess.Popen[bytes], limit_s: float) -> str | None:
        """The worker's next word; None when it ended or the time is over."""
        assert worker.stdout is not None
        ready, _, _ = select.select([worker.stdout], [], [], limit_s)
        line = worker.stdout.readline() if ready else b""
        return str(json.loads(line)["verdict"]) if line.endswith(b"\n") else None
