"""A plot of how answers changed: a line a question (in one language), a bar for each answer while it held.

Law: pure; equal rows give equal bytes, and whatever text came from data is escaped. An answer whose
beginning nobody noted is drawn from the left edge, one that holds now to the right edge, open.
"""

from __future__ import annotations

import html
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.evaluation.unit_square import GRID, INK, SOFT, colour

QUESTIONS = 14  # shown: those with most answers first
NAMES, WIDTH, LINE, TOP = 330, 560, 26, 66
LONGEST = 46  # characters of a question


def history_plot(rows: Path) -> str | None:
    """SVG of the history in a Parquet file; None where no answer has a date."""
    frame = pl.read_parquet(rows)
    dated = frame.filter(pl.col("answer").is_not_null() & pl.col("as_of").is_not_null())
    if dated.is_empty():
        return None
    days = [d for c in ("valid_from", "as_of") for d in dated[c].drop_nulls()]
    first, last = min(days), max(days)
    room = max(timedelta(days=30), (last - first) / 20)
    room_before, room_after = min(room, first - date.min), min(room, date.max - last)  # the calendar has ends
    span = (first - room_before, last + room_after)
    chosen = (
        dated.group_by("question_id", "language")
        .agg(pl.len().alias("answers"), pl.col("question").first())
        .sort(
            "answers",
            pl.col("language") == "en",
            "question",
            "language",
            descending=[True, True, False, False],
        )
        .unique("question_id", keep="first", maintain_order=True)
        .head(QUESTIONS)
    )
    drawn: list[str] = []
    for place, (question_id, language, _, question) in enumerate(chosen.rows()):
        own = dated.filter((pl.col("question_id") == question_id) & (pl.col("language") == language))
        drawn += _line(place, f"[{language}] {question}", own.sort("version").to_dicts(), span)
    return _framed(drawn, chosen.height, span, frame["question_id"].n_unique())


def _line(place: int, name: str, answers: list[dict[str, Any]], span: tuple[date, date]) -> list[str]:
    top = TOP + LINE * place
    short = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
    parts = [
        f'<text x="{NAMES - 8}" y="{top + 15}" text-anchor="end">{html.escape(short)}'
        f"<title>{html.escape(name)}</title></text>"
    ]
    for k, row in enumerate(answers):
        left = NAMES if row["valid_from"] is None else _x(row["valid_from"], span)
        right = NAMES + WIDTH if row["valid_to"] is None else _x(row["valid_to"], span)
        held = f"{row['valid_from'] or 'ever'} to {row['valid_to'] or 'now'}, seen on {row['seen']} days"
        parts.append(
            f'<rect x="{left:.1f}" y="{top + 2}" width="{max(2.0, right - left):.1f}" height="18" rx="2" '
            f'fill="{colour(k)}" fill-opacity="0.8">'
            f"<title>{html.escape(str(row['answer']))}: {held}</title></rect>"
        )
        fits = int((right - left - 8) / 7)
        if fits >= 3:
            text = str(row["answer"])
            text = text if len(text) <= fits else f"{text[: fits - 1]}…"
            parts.append(f'<text x="{left + 4:.1f}" y="{top + 15}" fill="#ffffff">{html.escape(text)}</text>')
    return parts


def _x(day: date, span: tuple[date, date]) -> float:
    share = (day - span[0]) / (span[1] - span[0])
    return NAMES + WIDTH * min(1.0, max(0.0, share))


def _framed(drawn: list[str], lines: int, span: tuple[date, date], questions: int) -> str:
    width, bottom = NAMES + WIDTH + 50, TOP + LINE * lines
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 40}" width="{width}" '
        f'height="{bottom + 40}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img">',
        "<title>Answers and the time they held</title>",
        f'<rect width="{width}" height="{bottom + 40}" fill="#ffffff"/>',
        '<text x="12" y="24" font-size="15" font-weight="600">Answers and the time they held</text>',
        f'<text x="12" y="44" fill="{SOFT}">{lines} of {questions} questions, those with most answers first;'
        " open at the right: holds now</text>",
    ]
    for tick in range(5):
        day = span[0] + (span[1] - span[0]) * tick / 4
        across = _x(day, span)
        parts.append(f'<path d="M{across:.1f} {TOP - 6}V{bottom}" stroke="{GRID}"/>')
        parts.append(
            f'<text x="{across:.1f}" y="{bottom + 18}" text-anchor="middle" fill="{SOFT}">{day}</text>'
        )
    return "\n".join([*parts, *drawn, "</svg>"]) + "\n"
