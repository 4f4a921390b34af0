"""What a step of this engine says to a model: a sheet of prompts, and the two ways to put it.

Law: a sheet is one YAML file, and its hash covers all that is said from it: instruction, examples, cue.
What a model or a user wrote is only ever a value in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.data.prompts import Prompt, load_prompt
from pipelines.errors import ConfigError

STYLES = ("chat", "completion")

LANGUAGE_NAMES = {
    "ar": "Arabic",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "he": "Hebrew",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pt": "Portuguese",
    "ru": "Russian",
    "th": "Thai",
    "vi": "Vietnamese",
    "zh": "Chinese",
}


@dataclass(frozen=True)
class Turns:
    """What is asked: an instruction, worked examples (asked, answered), and the question with its cue."""

    instruction: str
    shots: Sequence[tuple[str, str]]
    asked: str
    cue: str = ""  # ends the prompt of a completion: "Classification:"

    def form(self, style: str) -> dict[str, Any]:
        """The fields of a `Request` by which this is asked. Raises ConfigError for an unknown style.

        chat: the examples are earlier turns, for a model with a chat template. completion: one text,
        for a base model.
        """
        if style == "chat":
            turns = [t for asked, told in self.shots for t in (("user", asked), ("assistant", told))]
            return {
                "kind": "chat",
                "messages": (("system", self.instruction), *turns, ("user", self.asked)),
            }
        if style != "completion":
            raise ConfigError(f"unknown style {style!r}", cure=f"one of {', '.join(STYLES)}")
        cue = f"\n{self.cue}" if self.cue else "\n"
        shots = [f"{asked}{cue} {told}".replace("\n ", "\n") for asked, told in self.shots]
        return {"kind": "completion", "prompt": "\n\n".join([self.instruction, *shots, f"{self.asked}{cue}"])}


@dataclass(frozen=True)
class Sheet:
    """A file of prompts. `parts` are its texts (Jinja) and its examples (plain data) by name."""

    prompt: Prompt
    parts: Mapping[str, Any]

    @property
    def hash(self) -> str:
        return self.prompt.hash

    def say(self, part: str, **values: Any) -> str:
        """A text of the sheet, rendered strictly, without blanks at its ends."""
        return Prompt(f"{self.prompt.name}: {part}", self.parts[part], self.hash).render(**values).strip()


def sheet(relative: str) -> Sheet:
    """The sheet at `relative` to this module."""
    import yaml

    prompt = load_prompt(__file__, relative)
    return Sheet(prompt, yaml.safe_load(prompt.text))


def as_json(value: Any) -> str:
    """How an example of an answer is written."""
    return json.dumps(value, ensure_ascii=False)


def language_name(code: str) -> str:
    """The English name of a language, for prompts. Raises ConfigError for one that has none here."""
    if code not in LANGUAGE_NAMES:
        raise ConfigError(f"no prompt names language {code!r}", cure=f"one of {', '.join(LANGUAGE_NAMES)}")
    return LANGUAGE_NAMES[code]
