"""Answers that plain Python can read: numbers, sets, intervals, yes and no.

Law: `decide` says right or wrong only where exact arithmetic over what was read
proves it; whatever else an answer may be is None, for a computer algebra system.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from pipelines.data.plain_numbers import number, tidy

YES = frozenset("yes true oui vrai sim verdadeiro sí si verdadero ja wahr はい 예 네 ใช่ 是 да".split())
NO = frozenset("no false non faux não nao falso nein falsch いいえ 아니요 아니오 ไม่ใช่ 不是 否 нет".split())
_WORDS = {
    word: value
    for words in (
        "zero one two three four five six seven eight nine ten eleven twelve",
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze",
        "zero um dois três quatro cinco seis sete oito nove dez onze doze",
        "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
        "〇 一 二 三 四 五 六 七 八 九 十",
        "영 일 이 삼 사 오 육 칠 팔 구 십",
    )
    for value, word in enumerate(words.split())
}
_SCALE = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "dozen": 12}
# Words after a number that are mathematics or another number, never a unit.
_NO_UNIT = frozenset(
    "pi sqrt sin cos tan log ln exp mod choose times plus minus over or and half third squared cubed point "
    "et ou oder und mil mille millions milhões millones tausend".split()
)
_ALGEBRA = frozenset("sqrt sin cos tan log exp min max gcd lcm mod infty infinity".split())
_UNIT = re.compile(r"(?:[^\W\d_][^\W\d_]+|[^\W\d_]{1,2}²|°[CF]?)(?:[ /'’-][^\W\d_]+)*", re.UNICODE)
_LEADING = re.compile(r"[-+−]?\s*(?:\d[\d.,\u00a0\u2009\u202f ]*\d|\d)(?:/\d+)?")
_MONEY = re.compile(r"^([-−]?)\s*(?:\\?\$|€|£|¥|₩|฿|R\$|US\$)\s*(?=[\d.])")
_OR = re.compile(
    r"\s*[,;(]?\s*\b(?:or\s+(?:equivalently|approximately|simply|about)|i\.e\.|equivalently|that is)[,:]?\s+"
)
_CUP = re.compile(r"\s*(?:\\cup(?![a-z])|∪)\s*")
_PIECE = re.compile(r"([\[(])\s*([^()\[\]]+?)\s*,\s*([^()\[\]]+?)\s*([\])])")


@dataclass(frozen=True)
class Value:
    """An answer that was read. `kind`: number, set, pieces (intervals, pairs) or yesno."""

    kind: str
    content: object
    unit: str = ""


def clean(answer: str) -> str:
    """The answer without the marks around it: maths dollars, text boxes, bold, a final full stop, `x =`."""
    text = answer.strip()
    previous = None
    while text != previous:
        previous = text
        text = re.sub(r"^(\${1,2}|\*{1,2}|`)(.*?)\1$", r"\2", text, flags=re.DOTALL).strip()
        text = re.sub(r"^\\[(\[](.*)\\[)\]]$", r"\1", text, flags=re.DOTALL).strip()
        text = re.sub(r"^\\(?:text|mathrm|mbox|textbf|boxed)\{([^{}]*)\}$", r"\1", text).strip()
        text = re.sub(r"(?<![.])[.。．]$", "", text).strip() if not text.endswith("...") else text
    text = re.sub(r"\\(?:left|right|displaystyle)(?![a-z])", "", text)
    text = re.sub(r"\\text\{\s*([^{}]*?)\s*\}", r" \1", text)
    text = re.sub(r"^[A-Za-z](?:_\w|\([a-z]\))?\s*=\s*(?=[^=]*$)", "", text)
    return tidy(text).strip()


def alternatives(answer: str) -> list[str]:
    """The spellings that an answer offers: "C(10, 5), or equivalently 252" gives two."""
    parts = [p.strip(" ,;()") if i else p.strip(" ,;") for i, p in enumerate(_OR.split(answer))]
    return [p for p in parts if p] or [answer]


def read(answer: str, language: str = "en") -> Value | None:
    """The value of a cleaned answer, None when plain Python cannot read it."""
    word = answer.casefold().strip(" .!")
    if word in YES or word in NO:
        return Value("yesno", word in YES)
    return _number(answer, language) or _pieces(answer, language) or _set(answer, language)


def _number(text: str, language: str) -> Value | None:
    text = _MONEY.sub(r"\1", text)
    percent = re.fullmatch(r"(.+?)\s*(?:\\?%|percent)", text)
    if percent:
        value = number(percent[1], language)
        return None if value is None else Value("number", value, "%")
    value = number(text, language)
    if value is not None:
        return Value("number", value)
    if text.casefold() in _WORDS:
        return Value("number", Fraction(_WORDS[text.casefold()]))
    found = _LEADING.match(text)
    return None if found is None else _with_unit(found[0], text[found.end() :], language)


def _with_unit(digits: str, rest: str, language: str) -> Value | None:
    """5 apples, 18個, 3 million; None where the rest may be mathematics (2x, 5 pi, 2 and 3)."""
    value, unit = number(digits, language), rest.strip(" .")
    if value is None:
        return None
    words = unit.casefold().split()
    if words and words[0] in _SCALE:
        more = " ".join(words[1:])
        return Value("number", value * _SCALE[words[0]], more) if not more or _UNIT.fullmatch(more) else None
    script = bool(unit) and ord(unit[0]) > 0x0E00 and unit[0].isalpha()  # Thai, Japanese, Korean counters
    if not (script or _UNIT.fullmatch(unit)) or _NO_UNIT & set(re.split(r"[ /'’-]", unit.casefold())):
        return None
    return Value("number", value, unit.casefold()) if not any(c.isdigit() for c in unit) else None


def goes_on(rest: str) -> bool:
    """Whether the words after a number belong to it: "pi", "million", not "apples"."""
    first = re.match(r"\s*([^\W\d_]+)", rest)
    return first is not None and (first[1].casefold() in _NO_UNIT or first[1].casefold() in _SCALE)


def prose(answer: str) -> bool:
    """Whether it is words: computer algebra would read them as a product of letters."""
    bare = re.sub(r"\\[A-Za-z]+", " ", answer)
    return any(w.casefold() not in _ALGEBRA for w in re.findall(r"[^\W\d_]{3,}", bare))


def checkable(answer: str | None) -> bool:
    """Whether answers can be compared with this one: a value or algebra, not words alone."""
    if not answer:
        return False
    cleaned = [clean(a) for a in alternatives(answer)]
    return any(read(a) is not None or not prose(a) for a in cleaned)


def _set(text: str, language: str) -> Value | None:
    """2500,7500 or {1, 2} or 1 and 2: two or more plain numbers without order."""
    braced = re.fullmatch(r"\\?\{(.*?)\\?\}", text)
    inner = braced[1] if braced else text
    parts = re.split(r"\s*;\s*|,\s+|\s*,?\s+(?:and|or|et|ou|und|oder|y|o|e)\s+", inner.strip())
    if len(parts) == 1 and (language == "en" or braced):
        parts = inner.split(",")
    values = [number(p, language) for p in parts]
    if any(v is None for v in values) or (len(values) < 2 and not braced):
        return None
    return Value("set", frozenset(values))


def _pieces(text: str, language: str) -> Value | None:
    """(2,12) \\cup (12,102]: bracketed pairs of plain numbers or infinities, joined by unions."""
    found = [_PIECE.fullmatch(p) for p in _CUP.split(text)]
    pieces = []
    for piece in found:
        if piece is None:
            return None
        ends = (_end(piece[2], language), _end(piece[3], language))
        if None in ends:
            return None
        pieces.append((piece[1], *ends, piece[4]))
    return Value("pieces", frozenset(pieces))


def _end(text: str, language: str) -> Fraction | str | None:
    infinite = re.fullmatch(r"([-+]?)\s*(?:\\infty|∞|oo|infinity)", text)
    return f"{infinite[1].strip('+')}oo" if infinite else number(text, language)


def decide(given: Value, gold: Value) -> bool | None:
    """Whether both are the same answer; None when exact arithmetic alone cannot tell."""
    kinds = {given.kind, gold.kind}
    if kinds == {"number"}:
        return _same_number(given, gold)
    if kinds == {"set"}:
        return given.content == gold.content
    if kinds == {"pieces"}:
        single = isinstance(gold.content, frozenset) and len(gold.content) == 1
        return given.content == gold.content or (False if single and _as_many(given, gold) else None)
    if kinds == {"number", "set"}:
        one, many = (given, gold) if given.kind == "number" else (gold, given)
        return many.content == frozenset([one.content])
    if "yesno" in kinds:
        return given == gold
    return None


def _as_many(given: Value, gold: Value) -> bool:
    return len(given.content) == len(gold.content)  # type: ignore[arg-type]


def _same_number(given: Value, gold: Value) -> bool | None:
    a, b = given.content, gold.content
    assert isinstance(a, Fraction) and isinstance(b, Fraction)
    if given.unit == gold.unit:
        return a == b
    if "%" in (given.unit, gold.unit):  # 50 % may be asked for as 50 or as 1/2
        if given.unit and gold.unit:
            return None
        part, whole = (a, b) if given.unit == "%" else (b, a)
        return part == whole or part == whole * 100
    if given.unit and gold.unit:
        return None if a == b or not _plural(given.unit, gold.unit) else False
    return a == b


def _plural(one: str, other: str) -> bool:
    return one.rstrip("s") == other.rstrip("s")
