"""The endpoint's keys, and taking them out of what comes back.

Law: a key comes from the environment, goes into one header and nowhere else. Whatever an endpoint
sends is scrubbed of it before anything reads it: as it is, and as JSON, HTML, URLs and base64 spell it.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pipelines.llm.stops import KEY_VARIABLES

SHORTEST = 8  # characters; "none" or "EMPTY" is no secret, and may stand in any answer
MASK = b"***"


@dataclass(frozen=True)
class Secret:
    """The endpoint's key, and what else must not be seen; its repr hides both."""

    value: str = ""
    others: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls) -> Secret:
        return cls(next((v for name in KEY_VARIABLES if (v := os.environ.get(name, "").strip())), ""))

    def beside(self, url: str) -> Secret:
        """With the user and password of an address."""
        parts = urlsplit(url)
        if not parts.password:
            return self
        user, password = unquote(parts.username or ""), unquote(parts.password)
        return Secret(self.value, (*self.others, password, f"{user}:{password}"))

    def __repr__(self) -> str:
        return "Secret(...)"

    def scrub(self, raw: bytes) -> bytes:
        for form in self._forms:
            if form in raw:
                raw = raw.replace(form, MASK)
        return raw

    def scrub_text(self, text: str) -> str:
        return self.scrub(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    @cached_property
    def _forms(self) -> tuple[bytes, ...]:
        """Every spelling, the longest first, so that none leaves its rest."""
        values = [v for v in (self.value, *self.others) if len(v) >= SHORTEST]
        return tuple(sorted({f for v in values for f in _spellings(v)}, key=len, reverse=True))


def _spellings(value: str) -> Iterator[bytes]:
    """How a server may say `value`."""
    escaped = json.dumps(value, ensure_ascii=False)[1:-1]
    marked = html.escape(value)
    texts = {
        value, escaped, escaped.replace("/", "\\/"), json.dumps(value)[1:-1], repr(value)[1:-1],
        marked, html.escape(value, quote=False), marked.replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        quote(value, safe=""), quote(value), quote_plus(value),
    }  # fmt: skip
    for text in texts:
        yield text.encode()
        yield re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), text).encode()
    yield base64.b64encode(value.encode())
    yield base64.urlsafe_b64encode(value.encode())
    for offset in range(3):  # it may stand anywhere in what is encoded: "Bearer <key>", "user:<key>"
        yield from _in_base64(value.encode(), offset)


def _in_base64(raw: bytes, offset: int) -> Iterator[bytes]:
    """The characters of base64 that `raw` alone decides when it begins at a place of `offset` mod 3."""
    whole = base64.b64encode(b"\0" * offset + raw)
    begin = -(-offset * 8 // 6)
    end = (offset + len(raw)) * 8 // 6
    sure = whole[begin:end]
    yield sure
    yield sure.replace(b"+", b"-").replace(b"/", b"_")
    yield sure.replace(b"/", b"\\/")
