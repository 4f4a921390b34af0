"""Which observations of a question can be folded into its history, and why the others cannot.

Law: what cannot be used is named with its reason, and the choice does not depend on the order. On a day
on which two answers were found neither counts; on the day of a person's answer only that one does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.evergreen.refreshing.history import Seen, contradicting, key_with
from pipelines.evergreen.refreshing.observations import Observation
from pipelines.evergreen.reviewing.review import FOLDER, Decision

Key = tuple[str, str]  # question_id, language


def own_answer(row: Mapping[str, Any]) -> list[Seen]:
    """The answer that came with the question, as the first point of its history."""
    return [] if row["answer"] is None else [Seen(row["answer"], row["as_of"])]


def usable_points(
    rows: Mapping[Key, Mapping[str, Any]],
    found: Sequence[tuple[str, Observation]],
    decided: Mapping[Key, Decision] | None = None,
) -> tuple[Mapping[Key, list[Seen]], dict[str, str]]:
    """All points of each question, its own answer among them, and why the other observations are none.

    `found` are observations with a key that names each; returned are the points (each answer of a day
    once) and key -> reason: unknown_question | contradiction | again (it says what another said) |
    no_answer | overruled (a person answered that day).
    """
    told: dict[Key, list[tuple[str, Seen]]] = defaultdict(list)
    why: dict[str, str] = {}
    for name, o in sorted(found, key=lambda f: f[0]):
        if (o.question_id, o.language) not in rows:
            why[name] = "unknown_question"
        elif o.answer is None:
            why[name] = "no_answer"
        else:
            told[o.question_id, o.language].append((name, Seen(o.answer, o.as_of, name, o.response)))
    points: dict[Key, list[Seen]] = defaultdict(list)
    for key, row in rows.items():
        points[key] = _points(row, told[key], (decided or {}).get(key), why)
    return points, why


def _points(
    row: Mapping[str, Any], told: Sequence[tuple[str, Seen]], decision: Decision | None, why: dict[str, str]
) -> list[Seen]:
    """The points of one question; adds the reasons of those that are none to `why`."""
    same = key_with(row["answer"], row["aliases"])
    person = None
    if decision is not None and decision.answer is not None:
        person = Seen(decision.answer, decision.when, f"{FOLDER}: {decision.who}")
    own = [p for p in own_answer(row) if person is None or p.day != person.day]
    free = [(name, p) for name, p in told if person is None or p.day != person.day]
    why.update({name: "overruled" for name, p in told if person is not None and p.day == person.day})
    odd = contradicting([*own, *(p for _, p in free)], same)
    points = [*own, *([] if person is None else [person])]
    known = set()
    for name, point in free:
        which = (point.day, same(point.answer))
        if point.day in odd:
            why[name] = "contradiction"
        elif which in known:
            why[name] = "again"
        else:
            known.add(which)
            points.append(point)
    return points
