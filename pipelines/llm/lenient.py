"""JSON as models write it, read as far as the text says it and no further.

Law: a value is what the text says. What only the writing got wrong is overlooked and named (prose
around, fences, single quotes, trailing commas); nothing is completed, repaired by guess, or picked
out of the middle of something broken. Reading takes time in proportion to the text, and any text
gives values or none, never an error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

DEEPEST = 64  # of lists and objects in each other
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?P<real>(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)
BLANK = re.compile(r"[ \t\r\n\ufeff\u00a0]*")
OPENING = re.compile(r"[\[{]")
LETTERS = re.compile(r"[A-Za-z]*")
BARE_KEY = re.compile(r"[A-Za-z_$][\w$-]*")
WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
QUOTES = {'"': '"', "'": "'", "“": "”"}
ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\", '"': '"', "'": "'"}
CODE = re.compile(r"u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|U[0-9A-Fa-f]{8}")
PLAIN = {quote: re.compile(rf"[^\\\r\n{quote}]+") for quote in QUOTES.values()}
FENCE_BEFORE = re.compile(r"(?:```|~~~)[\w+-]*[ \t]*\r?\n?\s*\Z")
FENCE_AFTER = re.compile(r"\s*(?:```|~~~)")
FENCE = re.compile(r"\A(?:```|~~~)[\w+-]*[ \t]*\r?\n(?P<inside>.*?)(?:```|~~~)\s*\Z", re.S)
THOUGHT_END = "</think>"


@dataclass(frozen=True, slots=True)
class Found:
    """One value of a text, what had to be overlooked to read it, and whether it stood in a fence."""

    value: Any
    steps: tuple[str, ...] = ()
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """The outermost values of a text, in order. `broken`: one more begins there and is not whole."""

    found: tuple[Found, ...] = ()
    broken: bool = False


class NotJson(ValueError):
    """What stands at `at` cannot be read. `ended`: the text ends before the value does."""

    def __init__(self, at: int, *, ended: bool = False) -> None:
        super().__init__(f"no JSON at character {at}")
        self.at, self.ended = at, ended


def strict(text: str) -> Any:
    """The value of a text that is JSON to the letter. Raises ValueError, also for a name said twice
    with different values, for numbers beyond floats, and for half a surrogate pair."""
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_float=_finite, parse_constant=lambda word: _refuse()
        )
        if "\\u" in text or not text.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("too deep") from None
    return value


def heard(text: str) -> Heard:
    """What values stand in `text`: the whole of it, or lists and objects with anything around."""
    said = text.strip().strip("\ufeff")
    steps: tuple[str, ...] = ()
    if THOUGHT_END in said:
        said, steps = said.rpartition(THOUGHT_END)[2].strip(), ("thought",)
    if (fence := FENCE.match(said)) is not None and "```" not in fence["inside"]:
        whole = _whole(fence["inside"], (*steps, "fence"))
        if whole is not None:
            return Heard((whole,))
    whole = _whole(said, steps)
    return Heard((whole,)) if whole is not None else _around(said, steps)


def _whole(text: str, steps: tuple[str, ...]) -> Found | None:
    reader = Reader(text)
    try:
        value = reader.value()
        reader.blank()
    except NotJson:
        return None
    return Found(value, (*steps, *sorted(reader.steps))) if reader.at == len(text) else None


def _around(text: str, steps: tuple[str, ...]) -> Heard:
    """Lists and objects with prose around. After one that breaks, what follows may be its inside."""
    found: list[Found] = []
    at = 0
    while (opening := OPENING.search(text, at)) is not None:
        start = opening.start()
        reader = Reader(text, start)
        try:
            value = reader.value()
        except NotJson as broken:
            if broken.ended or reader.begun:
                return Heard(tuple(found), broken=True)
            at = max(broken.at, start + 1)
            continue
        at = reader.at
        fenced = bool(FENCE_BEFORE.search(text, max(0, start - 80), start) and FENCE_AFTER.match(text, at))
        where = "fence" if fenced else "prose"
        found.append(Found(value, (*steps, where, *sorted(reader.steps)), fenced))
    return Heard(tuple(found))


@dataclass
class Reader:
    """Reads one value at `at`; `steps` says what it overlooked, `begun` that a value was under way."""

    text: str
    at: int = 0
    steps: set[str] = field(default_factory=set)
    begun: bool = False

    def value(self, depth: int = 0) -> Any:
        """The value here. Raises NotJson."""
        self.blank()
        here = self._peek()
        if here == "{":
            return self._mapping(depth)
        if here == "[":
            return self._list(depth)
        if here in QUOTES:
            return self._string()
        if here == "-" or (here.isascii() and here.isdigit()):
            return self._number()
        return self._word()

    def blank(self) -> None:
        """Past blanks and comments."""
        while True:
            match = BLANK.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.text.startswith("//", self.at):
                end = self.text.find("\n", self.at)
            elif self.text.startswith("/*", self.at):
                end = self.text.find("*/", self.at + 2)
                end = end + 2 if end >= 0 else end
            else:
                return
            if end < 0:
                self._ended()
            self.at = end
            self.steps.add("comments")

    def _mapping(self, depth: int) -> dict[str, Any]:
        pairs: list[tuple[str, Any]] = []
        for _ in self._items("}", depth):
            key = self._key()
            self.blank()
            if self._peek() != ":":
                raise NotJson(self.at)
            self.begun = True
            self.at += 1
            pairs.append((key, self.value(depth + 1)))
        try:
            return _object(pairs)
        except ValueError:
            raise NotJson(self.at) from None

    def _list(self, depth: int) -> list[Any]:
        values = []
        for _ in self._items("]", depth):
            values.append(self.value(depth + 1))
            self.begun = self.begun or isinstance(values[-1], (dict, list)) or len(values) > 1
        return values

    def _items(self, close: str, depth: int) -> Iterator[None]:
        """Once for each item up to `close`; commas between them, and one too many at the end."""
        if depth >= DEEPEST:
            raise NotJson(self.at)
        self.at += 1
        self.blank()
        while self._peek() != close:
            yield
            self.blank()
            if self._peek() == ",":
                self.at += 1
                self.blank()
                if self._peek() == close:
                    self.steps.add("trailing commas")
            elif self._peek() != close:
                raise NotJson(self.at)
        self.at += 1

    def _key(self) -> str:
        if self._peek() in QUOTES:
            return self._string()
        word = BARE_KEY.match(self.text, self.at)
        if word is None:
            raise NotJson(self.at)
        self.at = word.end()
        if self.at == len(self.text):
            self._ended()
        self.steps.add("bare keys")
        return word[0]

    def _string(self) -> str:
        quote = QUOTES[self.text[self.at]]
        if quote != '"':
            self.steps.add("quotes")
        self.at += 1
        parts: list[str] = []
        while (here := self._peek()) != quote:
            if here == "\\":
                parts.append(self._escape())
            elif here in "\r\n":
                self.steps.add("raw line breaks")
                parts.append(here)
                self.at += 1
            else:
                plain = PLAIN[quote].match(self.text, self.at)
                assert plain is not None
                parts.append(plain[0])
                self.at = plain.end()
        self.at += 1
        text = "".join(parts)
        if not text.isascii():
            try:  # the halves of a pair, each escaped by itself, are one character
                text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                raise NotJson(self.at) from None
        return text

    def _escape(self) -> str:
        self.at += 1
        here = self._peek()
        if (code := CODE.match(self.text, self.at)) is not None and int(code[0][1:], 16) <= sys.maxunicode:
            if here != "u":
                self.steps.add("Python's escapes")
            self.at = code.end()
            return chr(int(code[0][1:], 16))
        self.at += 1
        if here in ESCAPES:
            return ESCAPES[here]
        self.steps.add("stray backslashes")
        return "\\" + here

    def _number(self) -> int | float:
        match = NUMBER.match(self.text, self.at)
        if match is None:
            raise NotJson(self.at)
        try:
            number = _finite(match[0]) if match["real"] else int(match[0])
        except ValueError:  # beyond floats, or more digits than int() takes
            raise NotJson(self.at) from None
        self.at = match.end()
        if re.match(r"[\w.]", self.text[self.at : self.at + 1]):
            raise NotJson(self.at)
        return number

    def _word(self) -> bool | None:
        word = LETTERS.match(self.text, self.at)
        assert word is not None
        if word[0] not in WORDS or re.match(r"\w", self.text[word.end() : word.end() + 1]):
            if word.end() == len(self.text):
                self._ended()
            raise NotJson(self.at)
        if word[0][0].isupper():
            self.steps.add("Python's words")
        self.at = word.end()
        return WORDS[word[0]]

    def _peek(self) -> str:
        if self.at >= len(self.text):
            self._ended()
        return self.text[self.at]

    def _ended(self) -> NoReturn:
        raise NotJson(len(self.text), ended=True)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping of `pairs`. Raises ValueError for a name with two values: neither may be chosen."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs) and any(same(mapping[name], value) is False for name, value in pairs):
        raise ValueError("a name with two values")
    return mapping


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; True is not 1, 1.0 is."""
    return bool(one == other) and json.dumps(_told(one), sort_keys=True) == json.dumps(
        _told(other), sort_keys=True
    )


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _told(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_told(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse()


def _refuse() -> NoReturn:
    raise ValueError("no JSON number")
