"""When two texts count as the same.

Law: a key depends on the text alone; texts that differ in case, width, blanks,
punctuation or symbols only have one key.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterable

# Letters, combining marks and numbers carry the words; all else is manner of writing.
WORD_KINDS = ("L", "M", "N")
LONG, HEAD = 5, 3  # letters of a word that may be a misspelt or inflected other, and those they must share
UNSPACED_LANGUAGES = ("ja", "km", "lo", "my", "th", "zh")
_UNSPACED = (  # scripts that write no blanks between words: of South-East Asia, China, Japan
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),
    *((0x2E80, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)


def question_key(text: str) -> str:
    """NFKC, case folded, with blanks, punctuation, symbols and invisible characters taken out.

    Empty when the text holds no letter, mark or number.
    """
    words = "".join(c for c in fold(text) if unicodedata.category(c)[0] in WORD_KINDS)
    return unicodedata.normalize("NFC", words)  # a mark may have come to stand beside its letter


def fold(text: str) -> str:
    """NFKC and case folded; blanks and punctuation stay."""
    if text.isascii():
        return text.casefold()
    # Folding may leave composed forms apart ("ΐ"), so compose once more.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def unspaced(code: int) -> bool:
    """True for a code point of a script that writes no blanks between words."""
    return any(low <= code <= high for low, high in _UNSPACED)


class Groups:
    """Union-find: members that were joined, directly or through others, share a group."""

    def __init__(self, members: Iterable[Hashable] = ()) -> None:
        self._parent: dict[Hashable, Hashable] = {m: m for m in members}

    def find(self, member: Hashable) -> Hashable:
        """The member that stands for the group; which one depends on the order of joins."""
        root = self._parent.setdefault(member, member)
        while root != self._parent[root]:
            root = self._parent[root]
        while member != root:
            self._parent[member], member = root, self._parent[member]
        return root

    def join(self, a: Hashable, b: Hashable) -> None:
        """Puts the groups of two members together."""
        self._parent[self.find(a)] = self.find(b)

    def all(self) -> list[list[Hashable]]:
        """The groups, members in the order in which they were first named."""
        found: dict[Hashable, list[Hashable]] = {}
        for member in self._parent:
            found.setdefault(self.find(member), []).append(member)
        return list(found.values())
