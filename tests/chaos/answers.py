"""What the scripted endpoint says in the chaos test: a function of the prompt, right or wrong by its hash."""

from __future__ import annotations

import hashlib
import re
from typing import Any

TRANSLATED = {
    "French:": ("Nadia a {} au marché. Combien de fruits a-t-elle en tout ?", "{} pommes", " et "),
    "Portuguese:": ("Nadia tem {} no mercado. Quantas frutas ela tem ao todo?", "{} maçãs", " e "),
    "Thai:": ("นาเดียมี{}ที่ตลาด เธอมีผลไม้ทั้งหมดกี่ลูก", "แอปเปิล {} ลูก", " และ"),
}
SOLVED = {
    "Réponse :": "{a} + {b} = {c}. La réponse est {c}.",
    "Resposta:": "{a} + {b} = {c}. A resposta é {c}.",
    "วิธีทำ:": "{a} + {b} = {c} คำตอบคือ {c}",
    "Solution:": "{a} + {b} = {c}. The answer is {c}.",
}


def answer(body: dict[str, Any]) -> str:
    """The completion for a request body of the completions protocol; in a chat it knows nothing."""
    if "prompt" not in body:
        return "I cannot say."
    prompt = body["prompt"].rstrip()
    drawn = hashlib.sha256(repr(sorted(body.items(), key=str)).encode()).digest()[0]
    cue = next((c for c in (*TRANSLATED, *SOLVED) if prompt.endswith(c)), None)
    if cue is None:
        return " I cannot say."
    question = prompt.removesuffix(cue).rstrip().rpartition("\n")[2]
    numbers = re.findall(r"\d+", question) or ["2"]
    if cue in TRANSLATED:
        sentence, thing, glue = TRANSLATED[cue]
        kept = numbers[drawn < 64 :]  # the first number goes missing in one of four
        return " " + sentence.format(glue.join(thing.format(n) for n in kept))
    a, b = (int(n) for n in (*numbers, "3")[:2])
    return " " + SOLVED[cue].format(a=a, b=b, c=(a * b if drawn % 3 else a + b))
