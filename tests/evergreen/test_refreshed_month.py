"""Thirty simulated days of `headrace refresh`, day by day against an independent recount."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from evergreen_rows import filtered
from refresh_workspace import files, fold, lay, noted

from pipelines.data.rows import digest
from pipelines.evergreen.refreshing.ask import foretell, refresh
from pipelines.evergreen.refreshing.report import Report

FIRST, DAYS = date(2025, 3, 1), 30
FAST, SLOW, AUDIT, RETRY, SEED = 6, 20, 0.25, 4, 7
PARAMS = {"fast_days": FAST, "slow_days": SLOW, "audit_share": AUDIT, "retry_days": RETRY}


def world_rows() -> list[dict[str, Any]]:
    """Sixty questions: fast, slow and of unknown rate, some with a dated answer, and evergreen ones."""
    drawn = random.Random(5)
    rows = []
    for n in range(60):
        rate = ("fast", "slow", "unknown", "never", "never")[n % 5]
        answer = "a0" if rate == "never" or n % 3 == 0 else None
        day = FIRST - timedelta(days=drawn.randrange(25)) if answer and n % 2 else None
        label = "evergreen" if rate == "never" else "mutable"
        rows.append(filtered(f"question {n}", label=label, change_rate=rate, answer=answer, as_of=day))
    return rows


def truth(n: int, day: int) -> str | None:
    """What the world says of question n on a day, None where nobody knows."""
    if n % 11 == 7:
        return None
    if n % 13 == 4:
        return None if day < 9 else "late"
    changed = random.Random(n).randrange(1, 45)  # once in the month, or after it
    return f"a{int(day >= changed)}" if n % 5 in (0, 2) or n in (3, 8, 23) else "a0"


class Recount:
    """The bookkeeping of the month in plain dates, without any code of the project but the hash of a draw."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.seen: dict[int, int | None] = {}  # day of the month on which the answer was last seen to hold
        self.answer: dict[int, str | None] = {}
        self.history: dict[int, list[tuple[str, int | None]]] = {}
        self.silent: dict[int, int] = {}  # last day without an answer
        for n, row in enumerate(rows):
            self.seen[n] = None if row["as_of"] is None else (row["as_of"] - FIRST).days
            self.answer[n] = row["answer"]
            self.history[n] = [] if row["answer"] is None else [(row["answer"], self.seen[n])]

    def due(self, n: int, day: int) -> tuple[bool, bool]:
        """(due, waits) of question n."""
        rate = self.rows[n]["change_rate"]
        if rate == "never":
            period = (FIRST + timedelta(days=day)).toordinal() // FAST

            def within(other: int | None) -> bool:
                return other is not None and (FIRST + timedelta(days=other)).toordinal() // FAST == period

            share = int(digest("audit", SEED, self.rows[n]["row_id"], period)[:12], 16) / 16**12
            return share < AUDIT and not within(self.seen[n]), within(self.silent.get(n))
        seen = self.seen[n]
        over = seen is None or day - seen >= (SLOW if rate == "slow" else FAST)
        return over, n in self.silent and day - self.silent[n] < RETRY

    def live(self, day: int) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for n in range(len(self.rows)):
            due, waits = self.due(n, day)
            if due and waits:
                counts["waiting"] += 1
            if not due or waits:
                counts["saved"] += not due
                continue
            counts["due"] += 1
            never = self.rows[n]["change_rate"] == "never"
            counts["audited"] += never
            told = truth(n, day)
            if told is None:
                counts["unanswered"] += 1
                self.silent[n] = day
                continue
            what = "first" if self.answer[n] is None else "confirmed" if told == self.answer[n] else "changed"
            counts[what] += 1
            counts["review"] += never and what == "changed"
            if told != self.answer[n]:
                self.history[n].append((told, day))
            self.answer[n], self.seen[n] = told, day
        return dict(counts)


def figures(report: Report) -> dict[str, int]:
    names = ("due", "waiting", "saved", "audited", "unanswered", "first", "confirmed", "changed", "review")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def test_thirty_days_are_as_an_independent_recount_has_them(tmp_path: Path) -> None:
    rows = world_rows()
    number = {row["question"]: n for n, row in enumerate(rows)}
    lay(tmp_path, rows, **PARAMS)
    calls: Counter[tuple[str, date]] = Counter()

    def world(question: str, language: str, day: date) -> str | None:
        calls[question, day] += 1
        return truth(number[question], (day - FIRST).days)

    recount, total = Recount(rows), Counter[str]()
    for n in range(DAYS):
        day = FIRST + timedelta(days=n)
        would, _ = foretell(tmp_path, day)
        expected = {k: v for k, v in recount.live(n).items() if v}
        report = refresh(tmp_path, day, world)
        assert figures(report) == expected, day
        # A table costs nothing: it would be asked for the rows that wait, too.
        assert (would.due, would.saved) == (report.due + report.waiting, report.saved)
        assert report.rows == report.due + report.waiting + report.saved
        assert (report.file is not None) == bool(report.due)
        again = refresh(tmp_path, day, world)
        assert (again.due, again.file) == (0, None), "the same day again asks nothing"
        total.update(expected)
    assert max(calls.values()) == 1
    assert len(calls) == total["due"] == len(noted(tmp_path))
    assert min(total[k] for k in ("audited", "unanswered", "first", "confirmed", "changed", "review")) > 0
    assert_folded(tmp_path, rows, recount, total)


def assert_folded(root: Path, rows: list[dict[str, Any]], recount: Recount, total: Counter[str]) -> None:
    """The stage makes of the month's files the histories of the recount, and the same sums."""
    step = fold(root, **PARAMS)
    made = pl.read_parquet(step.folder / "rows.parquet").sort("question", "version")
    for n, row in enumerate(rows):
        held = made.filter(question=row["question"])
        days = [None if d is None else FIRST + timedelta(days=d) for _, d in recount.history[n]]
        answers = [a for a, _ in recount.history[n]] or [None]
        assert held["answer"].to_list() == answers
        assert held["valid_from"].to_list() == (days or [None])
        assert held["valid_to"].to_list() == [*days[1:], None]
    told = step.metrics["requests"]
    asked_days = len({line["as_of"] for line in noted(root)})
    assert told["asked"] == total["due"]
    assert told["of_evergreen"] == total["audited"]
    assert (told["days"], told["everything"]) == (asked_days, asked_days * len(rows))
    assert told["saved"] == asked_days * len(rows) - total["due"]
    assert told["saved_share"] == pytest.approx(told["saved"] / told["everything"], abs=1e-4)
    cases = (step.folder / "review.jsonl").read_text().splitlines()
    changed = {n for n, h in recount.history.items() if len(h) > 1 and rows[n]["change_rate"] == "never"}
    assert len(cases) == len(changed) > 0
    assert sum(line["answer"] is None for line in noted(root)) == total["unanswered"]
    assert len(files(root)) == asked_days
