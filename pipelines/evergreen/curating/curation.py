"""What is decided of each question, from which other questions it equals or nearly equals.

Law: two questions are equal when they are in any language, and what is decided on a question holds for all
its wordings. A question unrelated to the others changes nothing for them. No rule takes a test question out
because of another that is not in test: the whole test split is scored.

Equal (`decide`): of opposite label, they are in conflict, and those outside test go, two of test both.
Within train and within dev one of several stays, the one with most wordings, then the smallest id. Across
splits they stay and are marked. A train question that equals one of a benchmark goes.

Nearly equal (`decide_near`), among those that are left: within train and of one label that one stays, across
splits they are marked, near a benchmark a train question goes. Near is no proof, so of opposite label both
stay, for a person to look at.

An unknown label conflicts with none. What is read for classification alone (the pool) is no part of a split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipelines.data.duplicates import Groups
from pipelines.evergreen.schema import DEV, POOL, TEST, TRAIN, UNKNOWN


@dataclass(frozen=True)
class Question:
    """One question in all its wordings. `keys`: language and question_key of each wording that has words.

    `benchmark`: the name of the registered benchmark that it is of, "" for none.
    """

    id: str
    split: str
    label: str
    keys: frozenset[str]
    benchmark: str = ""


@dataclass(frozen=True)
class Kin:
    """Two questions that nearly equal each other: ids a < b, and how that was seen."""

    a: str
    b: str
    similarity: float
    languages: str  # "en", or "en~fr" for wordings in two languages


@dataclass
class Verdicts:
    """What was found of each question id; a question in none of them is kept unmarked."""

    conflicts: dict[str, str] = field(default_factory=dict)  # id -> smallest id of opposite label
    duplicates: dict[str, str] = field(default_factory=dict)  # id -> id of the question kept instead
    benchmarks: dict[str, str] = field(default_factory=dict)  # train id -> id of the benchmark's question
    leaks_into_test: set[str] = field(default_factory=set)
    leaks_into_dev: set[str] = field(default_factory=set)
    near: dict[str, Kin] = field(default_factory=dict)  # id that goes as a near duplicate or benchmark -> why
    doubtful: list[Kin] = field(default_factory=list)  # nearly equal, of opposite label; both stay

    @property
    def gone(self) -> set[str]:
        """The ids of those that go."""
        return {*self.conflicts, *self.duplicates, *self.benchmarks}

    def goes(self, question: str) -> bool:
        """Whether the question of an id goes: `gone` without the making of a set."""
        return question in self.conflicts or question in self.duplicates or question in self.benchmarks


def opposite(a: Question, b: Question) -> bool:
    """True when both have a label and the labels differ."""
    return UNKNOWN not in (a.label, b.label) and a.label != b.label


def decide(found: Sequence[Question]) -> Verdicts:
    """What follows from equality. Linear in the number of wordings, however many of them are equal.

    Of those equal in one wording one of each split, label and benchmark, that with the smallest id, says
    all that a rule asks of its kind; a question's own kind says nothing of it.
    """
    holders: dict[str, dict[tuple[str, str, str], Question]] = defaultdict(dict)
    for question in sorted(found, key=lambda q: q.id):
        for key in question.keys:
            holders[key].setdefault((question.split, question.label, question.benchmark), question)
    verdicts = Verdicts()
    for question in found:
        equal = {o.id: o for k in question.keys for o in holders[k].values() if o.id != question.id}
        _conflict(question, equal.values(), verdicts)
        _marks(question, equal.values(), verdicts)
    _duplicates([q for q in found if not verdicts.goes(q.id)], verdicts)
    return verdicts


def _conflict(question: Question, equal: Iterable[Question], verdicts: Verdicts) -> None:
    against = [o for o in equal if opposite(o, question)]
    if question.split == TEST:  # the scored side goes only when test contradicts itself
        against = [o for o in against if o.split == TEST]
    if against:
        verdicts.conflicts[question.id] = min(o.id for o in against)


def _marks(question: Question, others: Iterable[Question], verdicts: Verdicts) -> None:
    """Marks what leaks, and notes the benchmark that a train question is in."""
    for other in others:
        if question.split != TEST and other.split == TEST:
            verdicts.leaks_into_test.add(question.id)
        if question.split == TRAIN and other.split == DEV:
            verdicts.leaks_into_dev.add(question.id)
        if question.split == TRAIN and other.benchmark:
            known = verdicts.benchmarks.setdefault(question.id, other.id)
            verdicts.benchmarks[question.id] = min(known, other.id)


def _duplicates(found: Sequence[Question], verdicts: Verdicts) -> None:
    by_id = {q.id: q for q in found if q.split in (TRAIN, DEV)}
    groups, seen = Groups(by_id), dict[tuple[str, str], str]()
    for question in by_id.values():
        for key in sorted(question.keys):
            groups.join(question.id, seen.setdefault((question.split, key), question.id))
    for group in groups.all():
        ids = sorted((str(i) for i in group), key=lambda i: _first(by_id[i]))
        verdicts.duplicates |= dict.fromkeys(ids[1:], ids[0])


def _first(question: Question) -> tuple[int, str]:
    """Which of several stays: the one with most wordings, then the smallest id."""
    return -len(question.keys), question.id


def decide_near(found: Sequence[Question], kin: Iterable[Kin], verdicts: Verdicts) -> None:
    """Adds what follows from near equality. `found`: the questions that are left, `kin` among them.

    A near duplicate goes only for one that stays, so a chain of likenesses takes out no more than it must.
    """
    by_id = {q.id: q for q in found}
    beside: dict[str, list[Kin]] = defaultdict(list)
    for one in sorted(kin, key=lambda k: (k.a, k.b)):
        ours, theirs = by_id[one.a], by_id[one.b]
        if opposite(ours, theirs) and POOL not in (ours.split, theirs.split):
            verdicts.doubtful.append(one)
        for question, other in ((ours, theirs), (theirs, ours)):
            known = question.id in verdicts.benchmarks
            _marks(question, [other], verdicts)
            if question.id in verdicts.benchmarks and not known:
                verdicts.near[question.id] = one
        if ours.split == theirs.split == TRAIN and ours.label == theirs.label:
            beside[one.a].append(one)
            beside[one.b].append(one)
    stay: set[str] = set()
    for question in sorted((by_id[i] for i in beside if i not in verdicts.benchmarks), key=_first):
        twins = {k.b if k.a == question.id else k.a: k for k in beside[question.id]}
        kept = sorted(i for i in twins if i in stay)
        if kept:
            verdicts.duplicates[question.id] = kept[0]
            verdicts.near[question.id] = twins[kept[0]]
        else:
            stay.add(question.id)
