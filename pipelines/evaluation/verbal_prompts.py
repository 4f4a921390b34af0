"""The prompts of the verbal baselines: the paper's verbalised classifier, and one each after UAR and MuLan.

Law: instruction and shots are English whatever the question's language, as the authors have it; the
question alone changes. No shot is a question of the data, in any split. A reply is read by its first
verdict, and one without any is wrong: it is counted, never left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import yaml

from pipelines.data.duplicates import question_key
from pipelines.data.prompts import load_prompt
from pipelines.errors import StageError
from pipelines.evergreen.making.verdicts import UNPARSED, verdict
from pipelines.evergreen.prompting import Sheet, Turns
from pipelines.evergreen.schema import EVERGREEN, MUTABLE

SHEETS = {"verbal": "prompts/verbal.yaml", "uar": "prompts/uar.yaml", "mulan": "prompts/mulan.yaml"}
_YES_NO = re.compile(r"\b(?:yes|no)\b")


@dataclass(frozen=True)
class Method:
    """One way to ask. `shots` are (question, what the model should have said), in the order shown."""

    name: str
    sheet: Sheet
    shots: Sequence[tuple[str, str]]
    left_out: Sequence[str]  # shots that the data holds
    read: Callable[[str], str]  # reply -> evergreen | mutable | unparsed

    def turns(self, question: str) -> Turns:
        """What is said about one question."""
        shots = [(self.sheet.say("ask", question=shown), told) for shown, told in self.shots]
        asked = self.sheet.say("ask", question=question)
        return Turns(self.sheet.say("instruction"), shots, asked, self.sheet.parts["cue"])


def method(name: str, held: Collection[str]) -> Method:
    """The method of this name; `held` are the `question_key`s of all questions of the data.

    Raises StageError when the data holds so many of the shots that a class has too few left.
    """
    prompt = load_prompt(__file__, SHEETS[name])
    sheet = Sheet(prompt, yaml.safe_load(prompt.text))
    read = yes_is_mutable if name == "uar" else verdict
    whole = Method(name, sheet, (), (), read)
    if "shots" not in sheet.parts:
        return whole
    shots = [(str(shown), str(told)) for shown, told in sheet.parts["shots"]]
    left_out = [shown for shown, _ in shots if question_key(shown) in held]
    usable = [s for s in shots if s[0] not in left_out]
    kept: list[tuple[str, str]] = []
    for shot in usable:
        if sum(told == shot[1] for _, told in kept) < sheet.parts["each"]:
            kept.append(shot)
    for label in sorted({told for _, told in shots}):
        if sum(told == label for _, told in kept) < sheet.parts["each"]:
            what = f"the data holds too many shots: fewer than {sheet.parts['each']} say {label!r}"
            raise StageError(what, where=f"prompt {prompt.name}", cure="add shots of your own there")
    return replace(whole, shots=kept, left_out=left_out)


def yes_is_mutable(reply: str) -> str:
    """evergreen | mutable | unparsed by the first yes or no of a reply; yes: the answer goes out of date."""
    found = _YES_NO.search(unicodedata.normalize("NFKC", reply).casefold())
    return UNPARSED if found is None else MUTABLE if found[0] == "yes" else EVERGREEN
