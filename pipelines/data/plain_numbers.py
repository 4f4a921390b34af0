"""Plain numbers as people write them in digits, read exactly.

Law: a spelling has one value or none. A mark that one language uses for
thousands and another for decimals is read by the rule of the language told,
and a group that is not well formed is no thousands separator.

| text           | en           | fr, pt, es, de |
|----------------|--------------|----------------|
| 1,234          | 1234         | 1.234          |
| 80.000         | 80           | 80000          |
| 2500,7500      | none (a set) | 2500.75        |
| 20{,}000       | 20000        | 20000          |
| 6\\,000\\,000    | 6000000      | 6000000        |
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

COMMA_DECIMAL = frozenset({"fr", "pt", "es", "de", "it", "ru"})
LONGEST = 400  # characters; what is longer is text, not a number
_SPACES = " \t\u00a0\u2009\u200a\u202f\u2007\u2002\u2003\u3000"
_GROUPED = {
    ",": re.compile(r"[1-9]\d{0,2}(?:,\d{3})+"),
    ".": re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+"),
    " ": re.compile(r"[1-9]\d{0,2}(?: \d{3})+"),
    "'": re.compile(r"[1-9]\d{0,2}(?:'\d{3})+"),
}
_DECIMAL = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)")
_MINUS = str.maketrans({"−": "-", "–": "-", "－": "-", "﹣": "-", "＋": "+"})
_MARKS = str.maketrans({"，": ",", "．": ".", "٬": ",", "٫": ".", "’": "'"})


def ascii_digits(text: str) -> str:
    """Every decimal digit of any script (full-width, Arabic-Indic, Bengali, Thai) as 0-9."""
    if text.isascii():
        return text
    digits = (str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    return "".join(digits).translate(_MINUS)


def tidy(text: str) -> str:
    """ASCII digits and signs; LaTeX's braced comma and thin spaces taken out between digits."""
    text = ascii_digits(text)
    text = re.sub(r"(?<=\d)\{,\}(?:\\!)?(?=\d)", "", text)
    text = re.sub(r"(?<=\d),?\\!(?=\d{3}(?!\d))", "", text)
    return re.sub(r"(?<=\d)(?:\\[,;: ]|\\thinspace\s*)(?=\d{3}(?!\d))", "", text)


def number(text: str, language: str = "en") -> Fraction | None:
    """Value of a plain integer, decimal, or fraction of such; None when the text is anything else."""
    if len(text) > LONGEST:
        return None
    text = tidy(text).translate(_MARKS).strip(_SPACES + "\n\r")
    sign, text = _sign(text)
    value = _unsigned(text, language)
    if value is None:
        value = _fraction(text, language)
    return None if value is None else sign * value


def _sign(text: str) -> tuple[int, str]:
    if text[:1] in ("-", "+"):
        return (-1 if text[0] == "-" else 1), text[1:].lstrip(_SPACES)
    return 1, text


def _fraction(text: str, language: str) -> Fraction | None:
    """a/b, \\frac{a}{b}, \\frac12, and the mixed number 1 1/2."""
    found = re.fullmatch(r"\\[dt]?frac\s*(?:\{([^{}]+)\}\s*\{([^{}]+)\}|(\d)(\d))", text)
    if found:
        over, under = found[1] or found[3], found[2] or found[4]
        return _ratio(*_sign(over.strip()), under.strip(), language)
    found = re.fullmatch(r"(\d+)\s+(\d+)\s*/\s*(\d+)", text)
    if found and int(found[3]):
        return int(found[1]) + Fraction(int(found[2]), int(found[3]))
    over, slash, under = text.partition("/")
    return _ratio(1, over.strip(), under.strip(), language) if slash else None


def _ratio(sign: int, over: str, under: str, language: str) -> Fraction | None:
    sign_under, under = _sign(under)
    a, b = _unsigned(over, language), _unsigned(under, language)
    return sign * sign_under * a / b if a is not None and b else None


def _unsigned(text: str, language: str) -> Fraction | None:
    text = re.sub(f"[{_SPACES}]", " ", text)
    thousands, decimal = (".", ",") if language in COMMA_DECIMAL else (",", ".")
    whole, mark, part = text.partition(decimal)
    if mark and decimal in part:  # two decimal marks: they can only be the other language's thousands
        return Fraction(text.replace(decimal, "")) if _GROUPED[decimal].fullmatch(text) else None
    for separator in (thousands, " ", "'"):
        if _GROUPED[separator].fullmatch(whole):
            whole = whole.replace(separator, "")
            break
    if mark and not (part.isdigit() or (not part and decimal == ".")):
        return None
    plain = f"{whole}.{part}" if mark else whole
    return Fraction(plain.rstrip(".")) if _DECIMAL.fullmatch(plain) else None
