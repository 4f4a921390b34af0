"""What the scripted endpoint says in the chaos test: a function of the prompt, right or wrong by its hash."""

from __future__ import annotations

import hashlib
import re
from typing import Any

TRANSLATED = {
    "French:": "Nadia a {a} pommes et elle achète {b} poires au marché. Combien de fruits a-t-elle en tout ?",
    "Portuguese:": "Nadia tem {a} maçãs e compra {b} peras no mercado. Quantas frutas ela tem ao todo?",
}
SOLVED = {
    "Réponse :": "{a} + {b} = {c}. La réponse est {c}.",
    "Resposta:": "{a} + {b} = {c}. A resposta é {c}.",
    "Solution:": "{a} + {b} = {c}. The answer is {c}.",
}


def answer(body: dict[str, Any]) -> str:
    """The completion for a request body of the completions protocol."""
    prompt = body["prompt"].rstrip()
    drawn = hashlib.sha256(repr(sorted(body.items(), key=str)).encode()).digest()[0]
    cue = next(c for c in (*TRANSLATED, *SOLVED) if prompt.endswith(c))
    question = prompt.removesuffix(cue).rstrip().rpartition("\n")[2]
    a, b = ([int(n) for n in re.findall(r"\d+", question)] + [2, 3])[:2]
    if cue in TRANSLATED:
        lost = drawn < 64  # a number goes missing in one of four
        return " " + TRANSLATED[cue].format(a=a, b="" if lost else b)
    return " " + SOLVED[cue].format(a=a, b=b, c=(a * b if drawn % 3 else a + b))
