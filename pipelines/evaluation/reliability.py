"""A reliability plot as SVG: what share is evergreen among questions that were given about this P.

Law: pure; equal bins give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pipelines.evaluation.metrics import Bin
from pipelines.evaluation.unit_square import SOFT, colour, framed, x, y


def wilson(share: float, rows: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share seen in `rows` rows."""
    centre = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    return max(0.0, centre - half), min(1.0, centre + half)


def plot(title: str, note: str, series: Mapping[str, Sequence[Bin]]) -> str:
    """SVG text. Each series is a line through its bins; the bars are 95 % Wilson intervals."""
    drawn = [f'<path d="M{x(0)} {y(0)}L{x(1)} {y(1)}" stroke="{SOFT}" stroke-dasharray="4 4" fill="none"/>']
    for k, found in enumerate(series.values()):
        drawn += _line(colour(k), found)
    return framed(title, note, "P(evergreen) as told", "share evergreen", list(series), drawn)


def _line(paint: str, found: Sequence[Bin]) -> list[str]:
    points = " ".join(f"{x(b.mean_p)},{y(b.share)}" for b in found)
    parts = [f'<polyline points="{points}" fill="none" stroke="{paint}" stroke-width="1.5"/>']
    for b in found:
        low, high = wilson(b.share, b.rows)
        across, up = x(b.mean_p), y(b.share)
        parts.append(f'<path d="M{across} {y(low)}V{y(high)}" stroke="{paint}" stroke-opacity="0.45"/>')
        hint = f"{b.rows} rows, mean P {b.mean_p:.3f}, evergreen {b.share:.3f}"
        parts.append(f'<circle cx="{across}" cy="{up}" r="3.5" fill="{paint}"><title>{hint}</title></circle>')
    return parts
