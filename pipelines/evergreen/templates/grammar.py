"""How a word joins the text before it: the contractions and elisions of French, Portuguese, German, Arabic.

Law: only the seam between a pattern and what fills it is changed, never text inside either.
"""

from __future__ import annotations

import re

# language -> (end of the text before, start of the filling, what stands for both)
_SEAMS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "fr": (
        ("de ", "le ", "du "),
        ("de ", "les ", "des "),
        ("à ", "le ", "au "),
        ("à ", "les ", "aux "),
        ("en ", "la ", "en "),
        ("en ", "l'", "en "),
        ("en ", "le ", "au "),
        ("en ", "les ", "aux "),
    ),
    "pt": tuple(
        (f"{before} ", f"{article} ", f"{joint}{article} ")
        for before, joint in (("de", "d"), ("em", "n"), ("por", "pel"))
        for article in ("o", "a", "os", "as")
    ),
    "de": (
        ("in ", "dem ", "im "),
        ("von ", "dem ", "vom "),
        ("zu ", "dem ", "zum "),
        ("zu ", "der ", "zur "),
    ),
    "ar": (("ل", "ال", "لل"),),
}
_ELIDED = re.compile(r"(?i)(?<!\w)(d|qu)e $")  # "de Aristote" is d'Aristote
_VOWEL = re.compile(r"(?i)[aeiouyàâéèêëîïôöùûœæ]|h(?:eures?|abit|omme|istoire|ôtel)")


def joined(text: str, filling: str, language: str) -> str:
    """`text` followed by `filling`, as the language writes the two together."""
    for before, start, both in _SEAMS.get(language, ()):
        if filling.startswith(start) and _ends(text, before):
            joint = both[0].upper() + both[1:] if text[-len(before)].isupper() else both
            return text[: -len(before)] + joint + filling[len(start) :]
    if language == "fr" and _VOWEL.match(filling) and (elided := _ELIDED.search(text)):
        return f"{text[: elided.start()]}{elided[1]}'{filling}"
    return text + filling


def _ends(text: str, word: str) -> bool:
    """True when the text ends with the word, and not with a longer one that ends alike."""
    if not text.casefold().endswith(word):
        return False
    before = text[: -len(word)]
    return not before or not before[-1].isalpha()
