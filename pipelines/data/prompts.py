"""Prompts are files with a name and a hash, rendered strictly.

Law: an unset variable is an error, and what a model or a user wrote is only
ever a value, never a template.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import StageError


@dataclass(frozen=True)
class Prompt:
    """A Jinja template. `name` is its path below `pipelines`, `hash` 16 hex digits of its SHA-256."""

    name: str
    text: str
    hash: str

    def render(self, **values: Any) -> str:
        """The text to send. Raises StageError when a variable of the template is not given."""
        import jinja2

        env = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=False)
        try:
            return env.from_string(self.text).render(**values)
        except jinja2.UndefinedError as e:
            raise StageError(f"{e}", where=f"prompt {self.name}") from e


def load_prompt(beside: str, relative: str) -> Prompt:
    """The prompt at `relative` to the module whose `__file__` is `beside`."""
    path = Path(beside).parent / relative
    text = path.read_text(encoding="utf-8")
    name = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
    return Prompt(name, text, hashlib.sha256(text.encode()).hexdigest()[:16])
