"""What sounds can come of what: verbs in groups, sounds with their causes, nouns with their relations.

Three tables lie beside this module: `verbs.csv` (group, trivial, verbs), `sounds.csv`
(label, phrase, family, verb groups, objects, left_out) and `nouns.csv` (noun, same_as,
is_a, part_of, traits). In `sounds.csv` an object is a noun or `@trait`; no object means
any. Law: words that the tables lack are related to nothing and cause nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Affordance:
    """A way in which a sound comes about: one of these verb groups on one of these objects."""

    verbs: frozenset[str]
    objects: frozenset[str]

    def causes(self, group: str, nouns: Iterable[str]) -> tuple[bool, list[str]]:
        """Whether an action causes it, and which of the action's nouns then sound."""
        if group not in self.verbs:
            return False, []
        if not self.objects:
            return True, list(nouns)
        sounding = [n for n in nouns if self._allows(n)]
        return bool(sounding), sounding

    def _allows(self, noun: str) -> bool:
        names = set(_names(noun))
        return bool(names & self.objects) or any(f"@{t}" in self.objects for t in traits(noun))


@dataclass(frozen=True)
class SoundClass:
    """One label: how it reads in a sentence, what it is akin to, and whether it is worth telling."""

    label: str
    phrase: str
    family: frozenset[str]
    affordances: tuple[Affordance, ...]
    left_out: bool


@dataclass(frozen=True)
class NounEntry:
    """A noun with the words that mean the same, its kinds, its wholes and its traits."""

    same: frozenset[str]
    is_a: frozenset[str]
    part_of: frozenset[str]
    traits: frozenset[str]


def _rows(name: str) -> list[dict[str, str]]:
    with open(Path(__file__).with_name(name), encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


@cache
def _verbs() -> dict[str, tuple[str, bool]]:
    return {v: (r["group"], r["trivial"] == "yes") for r in _rows("verbs.csv") for v in r["verbs"].split()}


@cache
def _nouns() -> dict[str, NounEntry]:
    def words(text: str) -> frozenset[str]:
        return frozenset([text] if text else [])

    return {
        r["noun"]: NounEntry(
            words(r["same_as"]), words(r["is_a"]), words(r["part_of"]), frozenset(r["traits"].split())
        )
        for r in _rows("nouns.csv")
    }


@cache
def _sounds() -> dict[str, SoundClass]:
    found: dict[str, SoundClass] = {}
    multiword = sorted((n for n in _nouns() if " " in n), key=len, reverse=True)
    for row in _rows("sounds.csv"):
        text, objects = row["objects"], set()
        for name in multiword:
            if f" {name} " in f" {text} ":
                objects.add(name)
                text = text.replace(name, " ")
        way = Affordance(frozenset(row["verbs"].split()), frozenset(objects | set(text.split())))
        before = found.get(row["label"])
        ways = (*(before.affordances if before else ()), *([way] if way.verbs else []))
        family = frozenset(row["family"].split())
        found[row["label"]] = SoundClass(row["label"], row["phrase"], family, ways, row["left_out"] == "yes")
    return found


def sound_class(label: str) -> SoundClass:
    """The entry of a label; one that the table lacks reads as itself and has no known cause."""
    known = _sounds().get(label)
    article = "an" if label[:1] in "aeiou" else "a"
    return known or SoundClass(label, f"{article} {label} sound", frozenset([label]), (), False)


def knows_sound(label: str) -> bool:
    """True when the table holds the label."""
    return label in _sounds()


def knows_verb(word: str) -> bool:
    """True when the table holds the word as a verb."""
    return word in _verbs()


def verb_group(verb: str) -> str:
    """Group of a verb written as EPIC does ("pick-up"): by the whole, then by its head; else itself."""
    head = verb.split("-", maxsplit=1)[0]
    return (_verbs().get(verb) or _verbs().get(head) or (head, False))[0]


def is_trivial(verb: str) -> bool:
    """True for verbs that say nothing worth a yes-or-no question: take, put, walk, look."""
    return (_verbs().get(verb) or _verbs().get(verb.split("-", maxsplit=1)[0]) or ("", False))[1]


def _names(noun: str) -> list[str]:
    """The noun and its head: "chopping board" is also "board". Plurals also in the singular."""
    names = [noun, *([noun.rsplit(maxsplit=1)[-1]] if " " in noun else [])]
    return [*names, *[n[:-1] for n in names if n.endswith("s") and not n.endswith("ss")]]


@lru_cache(maxsize=2**16)
def traits(noun: str) -> frozenset[str]:
    """What a noun is made of and how it can sound."""
    return frozenset(t for n in _names(noun)[::-1] if n in _nouns() for t in _nouns()[n].traits)


@lru_cache(maxsize=2**16)
def akin(noun: str) -> frozenset[str]:
    """The noun, its heads, synonyms, kinds and wholes, followed to the end."""
    found: set[str] = set()
    todo = _names(noun)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        entry = _nouns().get(name)
        if entry:
            todo += [*entry.same, *entry.is_a, *entry.part_of]
    return frozenset(found)


@lru_cache(maxsize=2**16)
def related_nouns(one: str, other: str) -> bool:
    """True when one is the other, a synonym, a kind, a whole or a part of it, or shares a word with it."""
    if set(_names(one)) & akin(other) or set(_names(other)) & akin(one):
        return True
    return bool({w for n in _names(one) for w in n.split()} & {w for n in _names(other) for w in n.split()})


@lru_cache(maxsize=2**16)
def related_sounds(one: str, other: str) -> bool:
    """True when two labels could name one sound: the same, or of one family."""
    return one == other or bool(sound_class(one).family & sound_class(other).family)
