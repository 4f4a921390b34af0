"""The few-shot prompts of this engine, one file a task and language.

Law: a language without a prompt is a ConfigError before any model is asked.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.data.prompts import Prompt, load_prompt
from pipelines.errors import ConfigError, nearest

LABELS = {"fr": "French:", "ja": "Japanese:", "ko": "Korean:", "pt": "Portuguese:", "th": "Thai:"}
ENGLISH = "English:"


def prompt_of(task: str, language: str | None) -> Prompt:
    """The prompt `task`_`language`.txt ("translate", "fr"). Raises ConfigError."""
    if language not in LABELS or not Path(__file__).with_name("prompts").is_dir():
        raise ConfigError(
            f"no prompt for language {language!r}",
            where="trit.languages",
            cure=nearest(str(language), LABELS),
        )
    return load_prompt(__file__, f"prompts/{task}_{language}.txt")


def one_line(text: str) -> str:
    """The text as one line: a line end would end its field in the prompt."""
    return " ".join(text.split())


def item_of(key: str, sample: int) -> str:
    """Work item of one sample of a group."""
    return f"{key}#{sample}"


def parse_item(item: str) -> tuple[str, int]:
    """Group key and sample index of a work item."""
    key, _, sample = item.rpartition("#")
    return key, int(sample)
