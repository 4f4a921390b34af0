"""The frame of a plot whose axes both run from 0 to 1, as SVG: title, note, grid, names, legend.

Law: pure; equal values give equal bytes, and whatever text came from data is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

SIDE, LEFT, TOP = 320, 56, 56
INK, SOFT, GRID = "#1f2933", "#616e7c", "#d9dee4"
COLOURS = ("#0b6e99", "#d1603d", "#7a8b2f", "#7b5ea7")


def colour(k: int) -> str:
    """The colour of the k-th series."""
    return COLOURS[k % len(COLOURS)]


def x(value: float) -> str:
    """Place of a value in [0, 1] across."""
    return f"{LEFT + SIDE * value:.1f}"


def y(value: float) -> str:
    """Place of a value in [0, 1] upwards."""
    return f"{TOP + SIDE * (1 - value):.1f}"


def framed(
    title: str, note: str, across: str, upward: str, names: Sequence[str], drawn: Sequence[str]
) -> str:
    """The whole SVG around what was drawn; `names` are the series in the order of `colour`."""
    width, height = LEFT + SIDE + 230, TOP + SIDE + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="600">{html.escape(title)}</text>',
        f'<text x="{LEFT}" y="42" fill="{SOFT}">{html.escape(note)}</text>',
        *_axes(across, upward),
        *drawn,
    ]
    for k, name in enumerate(names):
        row = TOP + 14 + 20 * k
        parts.append(f'<circle cx="{LEFT + SIDE + 18}" cy="{row - 4}" r="4" fill="{colour(k)}"/>')
        parts.append(f'<text x="{LEFT + SIDE + 28}" y="{row}">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(across: str, upward: str) -> list[str]:
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        base = f"{TOP + SIDE * (1 - tick) + 4:g}"
        parts += [
            f'<path d="M{x(tick)} {y(0)}V{y(1)}M{x(0)} {y(tick)}H{x(1)}" stroke="{GRID}" fill="none"/>',
            f'<text x="{x(tick)}" y="{TOP + SIDE + 18}" text-anchor="middle" fill="{SOFT}">{tick:g}</text>',
            f'<text x="{LEFT - 8}" y="{base}" text-anchor="end" fill="{SOFT}">{tick:g}</text>',
        ]
    middle, below = LEFT + SIDE / 2, TOP + SIDE + 42
    return [
        *parts,
        f'<text x="{middle:g}" y="{below}" text-anchor="middle">{html.escape(across)}</text>',
        f'<text transform="translate(16 {TOP + SIDE / 2:g}) rotate(-90)" text-anchor="middle">'
        f"{html.escape(upward)}</text>",
    ]
