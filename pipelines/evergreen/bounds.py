"""What the artifacts of this engine must keep to be called sound, as `checks.evergreen` of params.yaml says.

Law: a bound changes no row: it is read where an artifact is looked at, by no stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.data.config import Share


@dataclass(frozen=True)
class Bounds:
    """least_evergreen, most_evergreen: share of evergreen among the train questions that leak nowhere.
    most_overdue: share of the answers that can change, and hold now, whose day to be asked is past.
    most_ece: ECE of the classifier on test, ten bins of equal mass, languages pooled.
    """

    least_evergreen: Share = 0.25
    most_evergreen: Share = 0.75
    most_overdue: Share = 0.5
    most_ece: Share = 0.1
