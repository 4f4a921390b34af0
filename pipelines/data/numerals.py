"""Number words of the project's languages, as far as word problems use them.

Law: a table, not a parser of language: what is not in it is not a number. It
serves to find a number that a translation spelled out; "un", "한" or "一" may
also be an article or part of a word, so nobody may count what is extra here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache

_EN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_EN_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_FR = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
    "dix-sept dix-huit dix-neuf"
).split()
_FR_TENS = {20: "vingt", 30: "trente", 40: "quarante", 50: "cinquante", 60: "soixante", 80: "quatre-vingt"}
_PT = (
    "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze dezesseis "
    "dezessete dezoito dezenove"
).split()
_PT_TENS = "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa".split()
_PT_HUNDREDS = (
    "cem duzentos trezentos quatrocentos quinhentos seiscentos setecentos oitocentos novecentos"
).split()
_PT_ALSO = {"uma": 1, "duas": 2, "quatorze": 14, "dezasseis": 16, "dezassete": 17, "dezanove": 19}
_TH = "ศูนย์ หนึ่ง สอง สาม สี่ ห้า หก เจ็ด แปด เก้า".split()
_KO = "하나 둘 셋 넷 다섯 여섯 일곱 여덟 아홉 열".split()
_KO_TENS = "열 스물 서른 마흔 쉰".split()
_KO_SHORT = {"한": 1, "두": 2, "세": 3, "네": 4, "스무": 20}  # before a counter
_KO_COUNTERS = "개|명|마리|권|번|배|장|대|병|자루|송이|시간|달|살|가지|사람|그루|상자"
_DOZEN = {
    "en": ("dozen", "dozens"),
    "fr": ("douzaine", "douzaines"),
    "pt": ("dúzia", "dúzias"),
    "ja": ("ダース",),
    "ko": ("다스",),
    "th": ("โหล",),
}

# A number (digits or a word) directly followed by one of these is multiplied.
SCALES: dict[str, dict[str, int]] = {
    "en": {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9},
    "fr": {"cents": 100, "cent": 100, "mille": 1000, "millions": 10**6, "million": 10**6, "milliards": 10**9},
    "pt": {"mil": 1000, "milhões": 10**6, "milhão": 10**6, "bilhões": 10**9, "bilhão": 10**9},
    "ja": {"千": 1000, "万": 10**4, "億": 10**8},
    "ko": {"천": 1000, "만": 10**4, "억": 10**8},
    "th": {"ร้อย": 100, "พัน": 1000, "หมื่น": 10**4, "แสน": 10**5, "ล้าน": 10**6},
}
_HAN = {c: n for n, c in enumerate("〇一二三四五六七八九")}
_SINO = {c: n for n, c in enumerate("영일이삼사오육칠팔구")}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10**4}
_SINO_UNITS = {"십": 10, "백": 100, "천": 1000, "만": 10**4}


@cache
def words(language: str) -> dict[str, int]:
    """Word -> value for one language, empty for one without a table. Not to be changed."""
    table = {"en": _english, "fr": _french, "pt": _portuguese, "th": _thai, "ko": _korean}.get(language)
    found = {} if table is None else table()
    return found | dict.fromkeys(_DOZEN.get(language, ()), 12)


def word_numbers(text: str, language: str) -> Counter[Decimal]:
    """Numbers that are written as words in `text` (lower case inside), as a multiset."""
    found: Counter[Decimal] = Counter()
    pattern, table = _pattern(language), words(language)
    if pattern is not None:
        for m in pattern.finditer(text.casefold()):
            scale = SCALES.get(language, {}).get(m.group("scale") or "", 1)
            found[Decimal(table[re.sub(r"[\s-]+", "-", m.group("word"))] * scale)] += 1
    if language in ("ja", "zh"):
        found.update(_chinese(text, _HAN, _HAN_UNITS, lone=True))
    if language == "ko":
        found.update(_chinese(text, _SINO, _SINO_UNITS, lone=False))
        for m in re.finditer(rf"(?<![가-힣])(한|두|세|네|스무)\s?(?={_KO_COUNTERS}|\s)", text):
            found[Decimal(_KO_SHORT[m.group(1)])] += 1
    return found


@cache
def _pattern(language: str) -> re.Pattern[str] | None:
    """Longest word first; whole words where the language puts blanks between them."""
    table = words(language)
    if not table:
        return None
    spelled = [re.escape(w).replace(r"\-", r"[\s-]+") for w in sorted(table, key=len, reverse=True)]
    scales = "|".join(sorted(SCALES.get(language, {}), key=len, reverse=True)) or "(?!)"
    if language in ("th", "ja", "ko"):
        return re.compile(rf"(?P<word>{'|'.join(spelled)})\s?(?P<scale>{scales})?")
    return re.compile(rf"(?<!\w)(?P<word>{'|'.join(spelled)})(?:[\s-](?P<scale>{scales}))?(?!\w)")


def _english() -> dict[str, int]:
    table = {w: n for n, w in enumerate(_EN)}
    for tens, word in enumerate(_EN_TENS, 2):
        table |= {word: 10 * tens} | {f"{word}-{_EN[n]}": 10 * tens + n for n in range(1, 10)}
    return table


def _french() -> dict[str, int]:
    table = {w: n for n, w in enumerate(_FR)} | {"une": 1}
    for tens, word in _FR_TENS.items():
        table[word] = tens
        for n in range(1, 20 if tens in (60, 80) else 10):
            table[f"{word}-{_FR[n]}"] = tens + n
            if n in (1, 11):
                table |= {f"{word}-et-{_FR[n]}": tens + n, f"{word}-et-une": tens + 1}
    return table | {"quatre-vingts": 80}


def _portuguese() -> dict[str, int]:
    table = {w: n for n, w in enumerate(_PT)} | _PT_ALSO
    for tens, word in enumerate(_PT_TENS, 2):
        table |= {word: 10 * tens} | {f"{word}-e-{_PT[n]}": 10 * tens + n for n in range(1, 10)}
    return table | {w: 100 * n for n, w in enumerate(_PT_HUNDREDS, 1)}


def _thai() -> dict[str, int]:
    table = {w: n for n, w in enumerate(_TH)}
    for tens in range(1, 10):
        word = {1: "", 2: "ยี่"}.get(tens, _TH[tens]) + "สิบ"
        table |= {word: 10 * tens, f"{word}เอ็ด": 10 * tens + 1}
        table |= {word + _TH[n]: 10 * tens + n for n in range(2, 10)}
    return table


def _korean() -> dict[str, int]:
    table = {w: n for n, w in enumerate(_KO, 1)}
    for tens, word in enumerate(_KO_TENS, 1):
        table |= {word: 10 * tens} | {word + _KO[n - 1]: 10 * tens + n for n in range(1, 10)}
    # Of one syllable and inside many other words: counted only before a counter, above.
    return {w: n for w, n in table.items() if len(w) > 1}


def _chinese(text: str, digits: dict[str, int], units: dict[str, int], *, lone: bool) -> Iterator[Decimal]:
    """Numerals such as 二十五. `lone`: a single digit sign counts; else only with a unit, from two signs."""
    signs = "".join((*digits, *units))
    for m in re.finditer(f"(?<![0-9])[{signs}]+", text):
        sign = m.group()
        if not lone and (len(sign) < 2 or not any(c in units for c in sign)):
            continue
        total, here, digit = 0, 0, 0
        for c in sign:
            if c in digits:
                digit = 10 * digit + digits[c]
            elif units[c] == 10**4:
                total, here, digit = total + (here + digit or 1) * units[c], 0, 0
            else:
                here, digit = here + (digit or 1) * units[c], 0
        yield Decimal(total + here + digit)
