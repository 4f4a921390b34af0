"""How fast work goes, what it cost and when it ends: figures and the line that tells them.

Law: pure. The clock is handed in, the same sights give the same words, and a line is never wider
than it may be; what does not fit is left out, the least important first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields

WINDOW_S = 20.0  # the rate is that of so long: long enough to be steady, short enough to forget a gush
POINTS = 40  # remembered in a window
SURE_S = 3.0  # before so long no end is foretold


@dataclass(frozen=True, slots=True)
class Sight:
    """Work as it stands: items that have ended, well or not (`done`), of `total` (None: unknown).

    Of them `asked` were asked now and `stored` before; `failed` gave no usable answer, and `over_budget`
    were left unasked by a cap: neither is an answer. `limit`: most requests in flight at present, 0 when
    there is none; `cost_usd`: spent by this work, by all but the `unpriced` answers, whose price is unknown.
    """

    done: int = 0
    total: int | None = None
    asked: int = 0
    stored: int = 0
    failed: int = 0
    in_flight: int = 0
    limit: int = 0
    cost_usd: float = 0.0
    over_budget: int = 0
    unpriced: int = 0

    @property
    def answers(self) -> int:
        """Usable ones."""
        return max(0, self.done - self.failed - self.over_budget)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a stage's calls came to; several add up. `seconds` is the time that they took together.

    `answers` are the usable ones: with `failed` and `over_budget` they are all that ended. `asked` and
    `stored` say of what was not left unasked where its end came from.
    """

    answers: int = 0
    asked: int = 0
    stored: int = 0
    failed: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    over_budget: int = 0
    unpriced: int = 0

    @classmethod
    def of(cls, sight: Sight, seconds: float) -> Figures:
        return cls(
            sight.answers,
            sight.asked,
            sight.stored,
            sight.failed,
            sight.cost_usd,
            seconds,
            sight.over_budget,
            sight.unpriced,
        )

    @classmethod
    def total(cls, parts: Iterable[Figures]) -> Figures:
        rows = [[getattr(p, f.name) for f in fields(cls)] for p in parts]
        return cls(*map(sum, zip(*rows, strict=True))) if rows else cls()

    @property
    def rows_per_s(self) -> float:
        return self.answers / self.seconds if self.seconds > 0 else 0.0

    @property
    def stored_share(self) -> float:
        ended = self.answers + self.failed + self.over_budget
        return self.stored / ended if ended else 0.0

    def plain(self) -> dict[str, float]:
        """By the names under which trackers keep them."""
        return {
            "rows_per_s": round(self.rows_per_s, 3),
            "answers": self.answers,
            "answers_asked": self.asked,
            "answers_stored": self.stored,
            "answers_failed": self.failed,
            "answers_over_budget": self.over_budget,
            "answers_unpriced": self.unpriced,
            "stored_share": round(self.stored_share, 4),
            "cost_usd": round(self.cost_usd, 6),
            "seconds": round(self.seconds, 3),
        }


class Pace:
    """Rate and end of one piece of work named `name`, whose items are `what` ("answers").

    `began` and every `at` are seconds of one steady clock.
    """

    def __init__(self, name: str, what: str, began: float) -> None:
        self.name, self.what, self.began = name, what, began
        self.sight = Sight()
        self._at = began
        self._most = 0  # the highest limit seen: below it the endpoint holds us back
        self._points: deque[tuple[float, int, int]] = deque([(began, 0, 0)])  # when, ended, answers

    def see(self, sight: Sight, at: float) -> None:
        """Takes note of how the work stands."""
        self.sight, self._at = sight, max(at, self._at)
        self._most = max(self._most, sight.limit)
        if self._at - self._points[-1][0] >= WINDOW_S / POINTS:
            self._points.append((self._at, sight.done, sight.answers))
        while len(self._points) > 1 and self._points[1][0] <= self._at - WINDOW_S:
            self._points.popleft()  # the first point left is the last one at or before the window

    @property
    def rate(self) -> float:
        """Answers a second over the window."""
        at, _, answers = self._points[0]
        return max(0, self.sight.answers - answers) / (self._at - at) if self._at > at else 0.0

    @property
    def _ending(self) -> float:
        """Items that end a second, well or not."""
        at, done, _ = self._points[0]
        return max(0, self.sight.done - done) / (self._at - at) if self._at > at else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds to the end at this rate; None while it cannot be told."""
        ending = self._ending
        if self.sight.total is None or self._at - self.began < SURE_S or ending == 0:
            return None
        return max(0, self.sight.total - self.sight.done) / ending

    @property
    def figures(self) -> Figures:
        """Of all that was seen so far."""
        return Figures.of(self.sight, self._at - self.began)

    def line(self, width: int | None = None) -> str:
        """The work under way, in at most `width` columns."""
        sight, rate, left = self.sight, self.rate, self.left_s
        held = "" if sight.limit >= self._most else f" (held back to {sight.limit})"
        parts = [  # with the order in which they are given up
            (0, f"{words_of_count(sight.answers, sight.total)} {self.what}"),
            (1, words_of_rate(rate) if self._at > self.began else ""),
            (4, f"{sight.in_flight} in flight{held}" if sight.in_flight or held else ""),
            (6, f"{100 * sight.stored // max(sight.done, 1)} % stored" if sight.stored else ""),
            (3, words_of_unanswered(sight)),
            (5, words_of_cost(sight)),
            (2, f"{words_of_time(left)} left" if left is not None else ""),
        ]
        while True:
            text = f"  {self.name}: " + ", ".join(text for _, text in parts if text)
            if width is None or columns(text) <= width:
                return text
            if len(parts) == 1:
                return cut(text, width)
            parts.remove(max(parts))

    def sum(self, *, ended: bool) -> str:
        """What the work came to: the last line."""
        sight, seconds = self.sight, self._at - self.began
        count = words_of_count(sight.answers, sight.total if sight.answers != sight.total else None)
        parts = [
            f"{count} {self.what} in {words_of_time(seconds)}",
            words_of_rate(sight.answers / seconds) if seconds > 0 and sight.answers else "",
            f"{sight.asked} asked",
            f"{sight.stored} stored",
            words_of_unanswered(sight),
            words_of_cost(sight),
        ]
        return f"  {self.name}: {'' if ended else 'stopped at '}" + ", ".join(p for p in parts if p)


def words_of_count(done: int, total: int | None) -> str:
    return f"{done}" if not total else f"{done}/{total} ({100 * done // total} %)"


def words_of_unanswered(sight: Sight) -> str:
    """What ended without an answer, "" for nothing."""
    parts = [f"{sight.failed} failed" if sight.failed else ""]
    parts += [f"{sight.over_budget} over budget" if sight.over_budget else ""]
    return ", ".join(p for p in parts if p)


def words_of_cost(sight: Sight) -> str:
    """What was spent, "" for nothing."""
    if sight.unpriced and not sight.cost_usd:
        return "cost unknown"
    at_least = "at least " if sight.unpriced else ""
    return f"{at_least}{words_of_money(sight.cost_usd)}" if sight.cost_usd else ""


def words_of_rate(rate: float) -> str:
    """Items a second; a minute where they are few."""
    if rate >= 10:
        return f"{rate:,.0f}/s"
    return f"{rate:.1f}/s" if rate >= 0.5 or rate == 0 else f"{60 * rate:.1f}/min"


def words_of_money(usd: float) -> str:
    return f"{usd:,.2f} USD" if usd >= 0.1 else f"{usd:.4f} USD"


def words_of_time(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def columns(text: str) -> int:
    """Columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    return max(0, wcswidth(text))


def cut(text: str, width: int) -> str:
    """The head of a text that takes at most `width` columns."""
    while columns(text) > width:
        text = text[:-1]
    return text
