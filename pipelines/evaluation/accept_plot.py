"""The accept/precision curves as SVG.

Law: pure; equal curves give equal bytes. A curve of more than `POINTS` points is drawn at `POINTS`
even shares, so that the file does not grow with the test set.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.evaluation.accepting import Curve
from pipelines.evaluation.unit_square import colour, framed, x, y

POINTS = 200


def plot(title: str, note: str, curves: Mapping[str, Curve]) -> str:
    """SVG text: a line a curve, and a dotted line at its base rate, the precision of accepting all."""
    drawn: list[str] = []
    for k, found in enumerate(curves.values()):
        base = y(found.precision_at(1.0))
        points = " ".join(f"{x(share)},{y(precision)}" for share, precision in _thinned(found))
        drawn += [
            f'<path d="M{x(0)} {base}H{x(1)}" stroke="{colour(k)}" stroke-dasharray="1 4" fill="none"/>',
            f'<polyline points="{points}" fill="none" stroke="{colour(k)}" stroke-width="1.5"/>',
        ]
    return framed(title, note, "share accepted", "precision", list(curves), drawn)


def _thinned(found: Curve) -> list[tuple[float, float]]:
    """(share, precision) of each distinct P, or at even shares where there are too many."""
    if len(found.accepted) <= POINTS:
        return list(zip(found.shares.tolist(), found.precisions.tolist(), strict=True))
    return [(k / POINTS, found.precision_at(k / POINTS)) for k in range(1, POINTS + 1)]
