"""The process that compares answers by computer algebra, and that can be killed.

Law: it outlives neither its parent nor an item's limits. It ends at the end of
its input; each item has a budget of CPU seconds, after which the kernel ends it,
whatever it is doing; its memory is capped.

It is run by its path, alone, and imports nothing of this project. One JSON line
in ({"given", "gold", "cpu_s"}), one out ({"verdict"}).
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from typing import Any, TextIO


def main(memory_mb: int) -> None:
    """Serves until its input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import math_verify  # type: ignore[import-untyped, unused-ignore]  # noqa: F401

    size = memory_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _say(out, {"verdict": "ready"})
    for line in sys.stdin:
        item = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, float(item["cpu_s"]))
        verdict = judge(item["given"], item["gold"])
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        _say(out, {"verdict": verdict})


def _say(out: TextIO, value: dict[str, str]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


def judge(given: str, gold: str) -> str:
    """right, wrong, or unverified where one side cannot be read or the algebra fails."""
    try:
        import math_verify

        expected, found = _parse(gold), _parse(given)
        if not expected or not found:
            return "unverified"
        same = math_verify.verify(expected, found, timeout_seconds=None, raise_on_error=True)
        return "right" if same else "wrong"
    except (Exception, RecursionError, MemoryError):  # the algebra's own faults are many
        return "unverified"


def _parse(answer: str) -> list[Any]:
    """Expressions of an answer; empty when nothing but its text was understood."""
    import math_verify
    from math_verify import LatexExtractionConfig

    found = math_verify.parse(
        f"${latex(answer)}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return [f for f in found if not isinstance(f, str)]


def latex(answer: str) -> str:
    """Plain spellings of mathematics as LaTeX: 2^(n-2), C(10, 5), n*(n+1), sqrt(2)."""
    text = answer.strip().strip("$").replace("**", "^").replace("×", r"\times ").replace("·", r"\cdot ")
    text = re.sub(r"\bC\(\s*([^(),]+),\s*([^(),]+)\)", r"\\binom{\1}{\2}", text)
    text = re.sub(r"(?<!\\)\bsqrt\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"\^(-?\d+)", r"^{\1}", text)
    text = re.sub(r"(?<![\\\w])(pi|infty)\b", r"\\\1", text)
    return text.replace("*", r"\cdot ")


if __name__ == "__main__":
    main(int(sys.argv[1]))
