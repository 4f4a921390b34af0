"""The pace of work: its rate, its end and its line, by a clock that is handed in."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.pace import POINTS, Figures, Pace, Sight, columns, words_of_money, words_of_rate, words_of_time

COUNTS = st.integers(0, 10**9)
SIGHTS = st.builds(
    Sight, done=COUNTS, total=st.none() | COUNTS, asked=COUNTS, stored=COUNTS, failed=COUNTS,
    in_flight=COUNTS, limit=COUNTS, cost_usd=st.floats(0, 1e9), over_budget=COUNTS, unpriced=COUNTS,
)  # fmt: skip


def seen(*moments: tuple[float, int], total: int | None = 400) -> Pace:
    pace = Pace("trit.translate@fr", "answers", 100.0)
    for at, done in moments:
        pace.see(Sight(done, total), at)
    return pace


def test_the_rate_and_the_end_follow_from_what_is_done() -> None:
    pace = seen((105.0, 50), (110.0, 100))
    assert pace.rate == 10.0  # 100 in 10 s
    assert pace.left_s == 30.0  # 300 more
    assert pace.line() == "  trit.translate@fr: 100/400 (25 %) answers, 10/s, 30 s left"


def test_a_gush_from_the_store_is_forgotten_after_the_window() -> None:
    slow = [(100.0 + t, 200 + 2 * t) for t in range(1, 41)]  # 200 at once, then 2 a second
    assert seen(*slow[:10]).rate == 22.0
    assert seen(*slow).rate == 2.0
    assert seen(*slow).left_s == 60.0  # 120 more


def test_no_end_is_foretold_at_once_or_without_progress_or_total() -> None:
    assert seen((102.9, 50)).left_s is None
    assert seen((103.0, 50)).left_s == 21.0
    assert seen((110.0, 0)).left_s is None
    assert seen((110.0, 50), total=None).left_s is None


def test_everything_is_told_in_one_line() -> None:
    pace = seen()
    pace.see(Sight(103, 400, 63, 40, 3, 64, 128, 1.5), 105.0)
    pace.see(Sight(103, 400, 63, 40, 3, 64, 64, 1.5), 110.0)
    assert pace.line() == (
        "  trit.translate@fr: 100/400 (25 %) answers, 10/s, 64 in flight (held back to 64), 38 % stored, "
        "3 failed, 1.50 USD, 29 s left"
    )
    assert pace.line(60) == "  trit.translate@fr: 100/400 (25 %) answers, 10/s, 29 s left"
    assert pace.line(40) == "  trit.translate@fr: 100/400 (25 %) answ"


def test_a_limit_that_rises_holds_nothing_back() -> None:
    pace = seen()
    for at, limit in ((101.0, 4), (102.0, 8)):
        pace.see(Sight(1, None, 1, in_flight=4, limit=limit), at)
    assert pace.line() == "  trit.translate@fr: 1 answers, 0.5/s, 4 in flight"


def test_the_last_line_tells_the_sum() -> None:
    pace = seen()
    pace.see(Sight(400, 400, 300, 100, cost_usd=0.0421), 140.0)
    tail = "in 40 s, 10/s, 300 asked, 100 stored, 0.0421 USD"
    assert pace.sum(ended=True) == f"  trit.translate@fr: 400 answers {tail}"
    pace.see(Sight(100, 400, 100), 140.0)
    assert pace.sum(ended=False) == (
        "  trit.translate@fr: stopped at 100/400 (25 %) answers in 40 s, 2.5/s, 100 asked, 0 stored"
    )


def test_what_failed_and_what_no_cap_left_room_for_are_no_answers() -> None:
    pace = seen()
    pace.see(Sight(400, 400, 90, 10, failed=20, over_budget=300, cost_usd=0.5, unpriced=1), 110.0)
    assert pace.rate == 8.0  # answers: 80 in 10 s
    assert pace.line() == (
        "  trit.translate@fr: 80/400 (20 %) answers, 8.0/s, 2 % stored, 20 failed, 300 over budget, "
        "at least 0.50 USD, 0.0 s left"
    )
    assert pace.sum(ended=True) == (
        "  trit.translate@fr: 80/400 (20 %) answers in 10 s, 8.0/s, 90 asked, 10 stored, 20 failed, "
        "300 over budget, at least 0.50 USD"
    )
    assert pace.figures == Figures(80, 90, 10, 20, 0.5, 10.0, 300, 1)
    pace.see(Sight(100, 400, 100, unpriced=100), 120.0)
    assert "cost unknown" in pace.line() and "cost unknown" in pace.sum(ended=True)


def test_the_end_is_foretold_by_all_that_ends() -> None:
    pace = seen()
    pace.see(Sight(100, 400, 100, failed=50), 110.0)
    assert (pace.rate, pace.left_s) == (5.0, 30.0)


def test_figures_of_several_calls_add_up() -> None:
    both = Figures.total([Figures(100, 63, 40, 3, 1.5, 10.0, 7), Figures(100, 100, 0, 0, 0.5, 30.0, 0, 2)])
    assert both.plain() == {
        "rows_per_s": 5.0, "answers": 200, "answers_asked": 163, "answers_stored": 40, "answers_failed": 3,
        "answers_over_budget": 7, "answers_unpriced": 2, "stored_share": round(40 / 210, 4), "cost_usd": 2.0,
        "seconds": 40.0,
    }  # fmt: skip
    assert Figures.total([]).plain()["rows_per_s"] == 0.0


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (words_of_rate(1234.5), "1,234/s"),
        (words_of_rate(9.94), "9.9/s"),
        (words_of_rate(0.1), "6.0/min"),
        (words_of_rate(0.0), "0.0/s"),
        (words_of_money(12.345), "12.35 USD"),
        (words_of_money(0.0004), "0.0004 USD"),
        (words_of_time(0.04), "0.0 s"),
        (words_of_time(59.4), "59 s"),
        (words_of_time(59.6), "60 s"),
        (words_of_time(61), "1 min 1 s"),
        (words_of_time(3599.7), "1 h 0 min"),
        (words_of_time(9000), "2 h 30 min"),
    ],
)
def test_figures_are_told_in_few_words(told: str, words: str) -> None:
    assert told == words


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # long lists on a busy machine
@given(
    st.lists(st.tuples(st.floats(0, 1e6), SIGHTS), max_size=80),
    st.text(st.characters(exclude_categories=["C", "Z"]), max_size=30),
    st.integers(1, 200),
)
def test_whatever_is_seen_the_line_fits_and_the_figures_are_sound(
    moments: list[tuple[float, Sight]], name: str, width: int
) -> None:
    pace, at = Pace(name, "answers", 0.0), 0.0
    for step, sight in moments:
        at += step / 100
        pace.see(sight, at)
        assert pace.rate >= 0
        assert pace.left_s is None or pace.left_s >= 0
        assert columns(pace.line(width)) <= width
        assert pace.line().startswith(f"  {name}: {sight.answers}")
        assert len(pace._points) <= POINTS + 2
    assert pace.sum(ended=True).startswith(f"  {name}: {pace.sight.answers}")
