"""The final answer of a worked solution.

Law: an answer is what the text marks as its answer (a box, `#### 18`, `A: 18`,
a cue in its language); without a mark there is none. The last number is never
taken for an answer unless the caller says so.
"""

from __future__ import annotations

import re

from pipelines.data.answer_values import goes_on
from pipelines.data.plain_numbers import ascii_digits, number

_CUES = {
    "en": r"answer(?: to [^.\n]{1,60}?)?\s*(?:is|are|equals|will be|would be|[:=])(?!\s*not\b)",
    "fr": r"r[ée]ponse(?: finale| correcte)?\s*(?:est(?: donc| de)?|sera|[:=])",
    "pt": r"resposta(?: final| correta)?\s*(?:é|será|[:=])(?: de\b)?",
    "es": r"respuesta(?: final| correcta)?\s*(?:es|será|[:=])(?: de\b)?",
    "de": r"(?:antwort|lösung)\s*(?:ist|lautet|beträgt|[:=])",
    "it": r"risposta(?: finale| corretta)?\s*(?:è|[:=])",
    "ja": r"(?:答え|解答|回答|正解)(?:は、?|[:：=])",
    "ko": r"(?:정답|답)(?:은|는|[:：=])",
    "th": r"คำตอบ(?:สุดท้าย|ที่ถูกต้อง)?\s*(?:คือ|เท่ากับ|เป็น|[:=])",
    "zh": r"答案(?:是|为|為|[:：=])",
    "ru": r"ответ(?:\s+равен|\s+[-—])?\s*[:=]?",
}
_HASH = re.compile(r"^[ \t]*####[ \t]*(\S.*)$", re.MULTILINE)
_LINE = re.compile(r"^[ \t]*A[ \t]*:[ \t]*(\S.*)$", re.MULTILINE)
_END = re.compile(r"\n|[。！？!?]|\.(?=\s|$|\*|\")")
_NUMBER = re.compile(
    r"(?:\\?\$|€|£|¥)?\s*"
    r"([-+−]?\s*\d(?:[\d.,'/]|[ \u00a0\u2009\u202f](?=\d{3}(?!\d)))*\d|[-+−]?\s*\d)"
    r"\s*(\\?%)?"
)
_JOINT = re.compile(r"^\s*,?\s*(?:and|or|et|ou|und|oder|y|o|e)\s+[-+−]?\$?\d")
_MORE = re.compile(r"^\s*(?:[-+*/^=×÷·<>!_({\\]|[A-Za-z](?![^\W\d_])|,\s*[-+$]?\d)")


def extract(
    text: str, *, language: str = "en", require_box: bool = False, last_number: bool = False
) -> str | None:
    """The last marked answer of `text`, or None.

    Order: a closed box, `#### 18`, `A: 18`, the cue words of `language` and of
    English. A plain number comes back in ASCII digits without the separators of
    its language ("80.000" in pt is "80000"). `require_box` takes boxes alone;
    `last_number` falls back to the last number of the text.
    """
    boxed = _boxed(text)
    if boxed is not None or require_box:
        return _plain(boxed, language) if boxed else None
    for mark in (_HASH, _LINE):
        found = mark.findall(text)
        if found:
            return _shorten(found[-1], language)
    cued = _cued(text, language)
    if cued is not None or not last_number:
        return cued
    numbers = [m[1] for m in _NUMBER.finditer(ascii_digits(text))]
    return _plain(numbers[-1], language) if numbers else None


def _boxed(text: str) -> str | None:
    """Content of the last \\boxed{...} whose braces close; "" when the last one is cut off or empty."""
    at = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if at < 0:
        return None
    start = text.find("{", at)
    bare = re.match(r"\\(?:boxed|fbox)\s+([^\s{$]+)", text[at:])
    if bare:
        return bare[1]
    if start < 0:
        return ""
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0) if text[i - 1] != "\\" else 0
        if depth == 0:
            return text[start + 1 : i].strip()
    return ""


def _cued(text: str, language: str) -> str | None:
    cues = {_CUES["en"], _CUES.get(language, _CUES["en"])}
    found = [m for cue in sorted(cues) for m in re.finditer(cue, text, re.IGNORECASE)]
    for cue in sorted(found, key=lambda m: m.end(), reverse=True):
        rest = text[cue.end() :].lstrip(" \t:：*_`")
        rest = rest if rest[:1] != "\n" else ""
        end = _END.search(rest)
        answer = _shorten(rest[: end.start()] if end else rest, language)
        if answer:
            return answer
    return None


def _shorten(phrase: str, language: str) -> str | None:
    """The answer at the head of a phrase: "8 apples in all" is 8, "5 + 3 = 8" is 8, "2x + 1" stays."""
    phrase = phrase.strip(" \t\r*_`").rstrip(".。,; ")
    equation = re.fullmatch(r"[\d\s.,+\-−*/×÷()xX·$]+=\s*([^=]+)", ascii_digits(phrase))
    head = equation[1].strip() if equation else phrase
    found = _NUMBER.match(ascii_digits(head))
    if found:
        rest = ascii_digits(head)[found.end() :]
        if not _JOINT.match(rest) and not _MORE.match(rest) and not goes_on(rest):
            return _plain(found[1] + ("%" if found[2] else ""), language)
    return _plain(head, language)


def _plain(answer: str, language: str) -> str | None:
    """A plain number in one spelling that means the same in every language; other answers as they are."""
    percent = "%" if answer.endswith("%") else ""
    value = number(answer.removesuffix("%").strip(" $"), language)
    if value is None:
        return answer.strip() or None
    return spell(value.numerator, value.denominator) + percent


def spell(numerator: int, denominator: int) -> str:
    """A rational as an integer, else a terminating decimal, else a/b."""
    rest, digits = denominator, 0
    twos = fives = 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1 or denominator == 1:
        return str(numerator) if denominator == 1 else f"{numerator}/{denominator}"
    digits = max(twos, fives)
    scaled = str(abs(numerator) * 10**digits // denominator).rjust(digits + 1, "0")
    return f"{'-' if numerator < 0 else ''}{scaled[:-digits]}.{scaled[-digits:]}"
