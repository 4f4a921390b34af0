"""Which language a text is in, and which numbers it holds.

Law: pure and deterministic. Mathematics has no language: it is taken out first,
and where too few letters remain the answer is NEUTRAL, never a guess. A script
that only one candidate uses decides before any statistics do.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Literal

from pipelines.data.numerals import SCALES, word_numbers
from pipelines.errors import ConfigError, nearest

if TYPE_CHECKING:
    from lingua import LanguageDetector

Detector = Literal["lingua", "langdetect"]
DETECTORS: tuple[Detector, ...] = ("lingua", "langdetect")
NEUTRAL = "neutral"  # too few letters to have a language
OTHER = "other"  # a script that no candidate is written in
FEWEST_LETTERS = 6  # of an alphabet; a letter of a denser script counts DENSE times
DENSE = 3
ALPHABETS = frozenset({"latin", "cyrillic", "hebrew", "arabic"})  # a letter is a sound, as in Latin
LANGDETECT_SEED = 0

_SCRIPTS = {
    "ar": frozenset({"arabic"}),
    "he": frozenset({"hebrew"}),
    "ru": frozenset({"cyrillic"}),
    "ja": frozenset({"kana", "han"}),
    "zh": frozenset({"han"}),
    "ko": frozenset({"hangul", "han"}),
    "th": frozenset({"thai"}),
}
_LATIN = ("de", "en", "es", "fr", "it", "nl", "pt", "sw", "vi")
_RANGES = (
    (0x0041, 0x024F, "latin"),
    (0x1E00, 0x1EFF, "latin"),
    (0xFF21, 0xFF5A, "latin"),
    (0x0400, 0x052F, "cyrillic"),
    (0x0591, 0x05F4, "hebrew"),
    (0xFB1D, 0xFB4F, "hebrew"),
    (0x0600, 0x06FF, "arabic"),
    (0x0750, 0x077F, "arabic"),
    (0xFB50, 0xFDFF, "arabic"),
    (0xFE70, 0xFEFC, "arabic"),
    (0x0E01, 0x0E5B, "thai"),
    (0x1100, 0x11FF, "hangul"),
    (0x3130, 0x318F, "hangul"),
    (0xAC00, 0xD7A3, "hangul"),
    (0x3041, 0x30FF, "kana"),
    (0xFF66, 0xFF9D, "kana"),
    (0x3400, 0x4DBF, "han"),
    (0x4E00, 0x9FFF, "han"),
    (0xF900, 0xFAFF, "han"),
)

_DECIMAL_COMMA = frozenset({"de", "es", "fr", "it", "nl", "pt", "ru", "vi"})
_BLANKS = " \u00a0\u2009\u202f"
_MATHS = re.compile(
    r"""<<[^<>]*>>                                  # calculator marks of GSM8K
      | \$\$.+?\$\$ | \\\[.+?\\\] | \\\(.+?\\\)
      | \\begin\{(\w+\*?)\}.+?\\end\{\1\}
      | (?<![\\$])\$(?![\s$])[^$\n]*?(?<![\s\\$])\$(?![\d$])   # not money: "$5 and $6" has a blank before
      | \\[a-zA-Z]+(?:\{(?:[^{}]|\{[^{}]*\})*\})*             # \boxed{...}, \frac{a}{b}
      | (?<!\w)[A-Za-z](?=\s*[=+*/^<>])                       # a variable: x = 5
      | (?<=[=+*/^<>])\s*[A-Za-z](?!\w)
      | [\d=+*/^<>×÷·%$€£¥]+""",
    re.DOTALL | re.VERBOSE,
)
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)\b", re.IGNORECASE)


def strip_maths(text: str) -> str:
    """The text without formulas, calculator marks, variables, digits and operators; blanks collapsed."""
    return " ".join(_MATHS.sub(" ", text).split())


def script(char: str) -> str:
    """Script of one character: an alphabet, han, kana, hangul, thai or other; "" for what is no letter."""
    if not char.isalpha():
        return ""
    code = ord(char)
    return next((name for low, high, name in _RANGES if low <= code <= high), "other")


def scripts(text: str) -> Counter[str]:
    """Letters of `text` by script."""
    found = Counter(map(script, text))
    del found[""]
    return found


def identify(
    text: str,
    candidates: Iterable[str],
    *,
    detector: Detector = "lingua",
    fewest_letters: int = FEWEST_LETTERS,
) -> str:
    """The candidate that `text` is written in, else NEUTRAL or OTHER. Mathematics is left out.

    ar, he, ja, ko, ru, th and zh are told by script; among Latin candidates the detector,
    restricted to them, decides. Raises ConfigError for a language it does not know.
    """
    wanted = tuple(sorted(set(candidates)))
    for language in wanted:
        if language not in _SCRIPTS and language not in _LATIN:
            cure = nearest(language, (*_SCRIPTS, *_LATIN))
            raise ConfigError(f"cannot identify language {language!r}", cure=cure)
    body = strip_maths(text)
    found = scripts(body)
    weights = {name: n * (1 if name in ALPHABETS else DENSE) for name, n in found.items()}
    if sum(weights.values()) < fewest_letters:
        return NEUTRAL
    kanji = weights.pop("han", 0)  # Japanese and Korean use them too, beside letters of their own
    if not weights or kanji > max(weights.values()):
        owner = "kana" if found["kana"] else "hangul" if found["hangul"] else "han"
        weights[owner] = weights.get(owner, 0) + kanji
    main = max(sorted(weights), key=lambda name: weights[name])
    if main != "latin":
        return next((c for c in wanted if main == _letters_of(c)), OTHER)
    latin = tuple(c for c in wanted if c in _LATIN)
    if len(latin) < 2:
        return latin[0] if latin else OTHER
    return _by_lingua(body, latin) if detector == "lingua" else _by_langdetect(body, latin)


def _letters_of(language: str) -> str:
    own = {"ja": "kana", "zh": "han", "ko": "hangul", "th": "thai"}
    return (own | {"ar": "arabic", "he": "hebrew", "ru": "cyrillic"}).get(language, "latin")


def written_in(text: str, language: str) -> bool:
    """True when no letter, mathematics aside, is of a script foreign to the language (Latin is let pass)."""
    allowed = _SCRIPTS.get(language, frozenset({"latin"})) | {"latin"}
    return all(name in allowed for name in scripts(strip_maths(text)))


def _by_lingua(text: str, languages: tuple[str, ...]) -> str:
    found = _lingua(languages).detect_language_of(text)
    return OTHER if found is None else str(found.iso_code_639_1.name).lower()


@cache
def _lingua(languages: tuple[str, ...]) -> LanguageDetector:
    from lingua import IsoCode639_1, LanguageDetectorBuilder

    codes = [IsoCode639_1.from_str(code.upper()) for code in languages]
    return LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()


def _by_langdetect(text: str, languages: tuple[str, ...]) -> str:
    """langdetect draws at random: seeded here, for each text, where it is used."""
    from langdetect import detector_factory
    from langdetect.lang_detect_exception import LangDetectException

    try:
        detector_factory.init_factory()
        factory = detector_factory._factory
        factory.set_seed(LANGDETECT_SEED)
        detector = factory.create()
        detector.set_prior_map({c: 1 / len(languages) for c in languages})
        detector.append(text)
        return str(detector.detect())
    except LangDetectException:
        return OTHER


def numbers(text: str, language: str, *, words: bool = False) -> Counter[Decimal]:
    """Multiset of the numbers in `text`: digits of any script, read as the language writes them.

    "80 000" in fr, "80.000" in pt and "80,000" in en are one number; "2,5" is 2.5 in
    fr and two numbers in en. Signs are left out ("10-5" is no negative). With `words`,
    small numbers written as words count too (`numerals`).
    """
    plain = _ascii_digits(text)
    found: Counter[Decimal] = Counter(_digit_numbers(plain, language))
    return found + word_numbers(plain, language) if words else found


def lost_numbers(english: str, translation: str, language: str) -> list[Decimal]:
    """Numbers of the English text that the translation lacks, sorted; each as often as it is lacking.

    "one" and ordinals ("1st") need not appear: languages have other words for them.
    """
    needed = numbers(_ORDINAL.sub(" ", english), "en") + word_numbers(english, "en")
    needed[Decimal(1)] -= word_numbers(english, "en")[Decimal(1)]
    lacking = +needed - numbers(translation, language, words=True)
    return sorted(lacking.elements())


def added_numbers(english: str, translation: str, language: str) -> list[Decimal]:
    """Numbers in digits that the translation has and the English text lacks, in digits and in words."""
    known = numbers(english, "en", words=True)
    return sorted(n for n in numbers(translation, language) if n not in known)


def _ascii_digits(text: str) -> str:
    """Decimal digits of any script, and full-width or Arabic separators, as ASCII; LaTeX spacing gone."""
    signs = {"．": ".", "，": ",", "٫": ".", "٬": ",", "％": "%"}
    plain = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else signs.get(c, c) for c in text)
    return re.sub(r"(?<=\d)(?:\{,\}|\\,|,\\!|\\!|\\ )(?=\d{3}(?!\d))", "", plain)


def _digit_numbers(plain: str, language: str) -> Iterator[Decimal]:
    scales = SCALES.get(language, {})
    for m in _tokens(language).finditer(plain):
        parts = m.groupdict()
        fraction = parts["fraction"] or parts.get("point") or parts["bare"] or "0"
        value = Decimal(re.sub(r"\D", "", parts["whole"] or "0") + "." + fraction)
        yield (value * scales.get((parts["scale"] or "").lower(), 1)).normalize()


@cache
def _tokens(language: str) -> re.Pattern[str]:
    """Numbers in digits as the language groups and points them, with a scale word after them.

    A separator that stands twice between groups of three groups in every language. In
    a language with a decimal comma a point that cannot group (2.5) is a decimal point.
    """
    comma = language in _DECIMAL_COMMA
    group = rf"[.{_BLANKS}]" if comma else ","
    many = r"\d{1,3}(?P<sep>[.,])\d{3}(?:(?P=sep)\d{3})+(?!\d)"
    whole = rf"(?P<whole>{many}|\d{{1,3}}(?:{group}\d{{3}})+(?!\d)|\d+)"
    after = (
        r"(?:,(?P<fraction>\d+)|\.(?P<point>\d{1,2}|\d{4,})(?!\d))?" if comma else r"(?:\.(?P<fraction>\d+))?"
    )
    known = (w for w in SCALES.get(language, {}) if not w.startswith("cent"))  # "25 cents" is money
    words = "|".join(sorted(known, key=len, reverse=True)) or "(?!)"
    end = "" if language in ("ja", "ko", "th", "zh") else r"\b"
    scale = rf"(?:[{_BLANKS}]?(?P<scale>{words}){end})?"
    return re.compile(rf"(?:{whole}{after}|(?<!\w)\.(?P<bare>\d+)){scale}", re.IGNORECASE)
