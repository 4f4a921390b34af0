"""A reliability plot as SVG: what share is evergreen among questions that were given about this P.

Law: pure; equal bins give equal bytes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

from pipelines.evaluation.metrics import Bin

SIDE, LEFT, TOP = 320, 56, 56
INK, SOFT, GRID = "#1f2933", "#616e7c", "#d9dee4"
COLOURS = ("#0b6e99", "#d1603d", "#7a8b2f")


def wilson(share: float, rows: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share seen in `rows` rows."""
    centre = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    return max(0.0, centre - half), min(1.0, centre + half)


def plot(title: str, note: str, series: Mapping[str, Sequence[Bin]]) -> str:
    """SVG text. Each series is a line through its bins; the bars are 95 % Wilson intervals."""
    width, height = LEFT + SIDE + 150, TOP + SIDE + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="600">{html.escape(title)}</text>',
        f'<text x="{LEFT}" y="42" fill="{SOFT}">{html.escape(note)}</text>',
        *_axes(),
    ]
    for i, (name, found) in enumerate(series.items()):
        parts += _line(COLOURS[i % len(COLOURS)], found)
        y = TOP + 14 + 20 * i
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<circle cx="{LEFT + SIDE + 18}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + SIDE + 28}" y="{y}">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes() -> list[str]:
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y, base = _x(tick), _y(tick), f"{TOP + SIDE * (1 - tick) + 4:g}"
        parts += [
            f'<path d="M{x} {_y(0)}V{_y(1)}M{_x(0)} {y}H{_x(1)}" stroke="{GRID}" fill="none"/>',
            f'<text x="{x}" y="{TOP + SIDE + 18}" text-anchor="middle" fill="{SOFT}">{tick:g}</text>',
            f'<text x="{LEFT - 8}" y="{base}" text-anchor="end" fill="{SOFT}">{tick:g}</text>',
        ]
    across, middle, below = LEFT + SIDE / 2, TOP + SIDE / 2, TOP + SIDE + 42
    return [
        *parts,
        f'<path d="M{_x(0)} {_y(0)}L{_x(1)} {_y(1)}" stroke="{SOFT}" stroke-dasharray="4 4" fill="none"/>',
        f'<text x="{across:g}" y="{below}" text-anchor="middle">P(evergreen) as told</text>',
        f'<text transform="translate(16 {middle:g}) rotate(-90)" text-anchor="middle">share evergreen</text>',
    ]


def _line(colour: str, found: Sequence[Bin]) -> list[str]:
    points = " ".join(f"{_x(b.mean_p)},{_y(b.share)}" for b in found)
    parts = [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    for b in found:
        low, high = wilson(b.share, b.rows)
        x, y = _x(b.mean_p), _y(b.share)
        parts.append(f'<path d="M{x} {_y(low)}V{_y(high)}" stroke="{colour}" stroke-opacity="0.45"/>')
        hint = f"{b.rows} rows, mean P {b.mean_p:.3f}, evergreen {b.share:.3f}"
        parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"><title>{hint}</title></circle>')
    return parts


def _x(value: float) -> str:
    return f"{LEFT + SIDE * value:.1f}"


def _y(value: float) -> str:
    return f"{TOP + SIDE * (1 - value):.1f}"
