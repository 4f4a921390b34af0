"""One question on its way to a model, and what came of asking it."""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.llm.protocol import Reply
    from pipelines.llm.request import Request
    from pipelines.llm.store import Kept

    End = tuple[str, Kept]  # a key, and what the store says
    Handed = list[End] | BaseException


@dataclass(frozen=True, slots=True)
class Job:
    """A request under its key. Its end is put on `done`, with others, or an exception."""

    key: str
    canonical: str
    identity: str
    model: str
    request: Request
    done: SimpleQueue[Handed]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sending: "ok" or a failure's name, the seconds it took, and those waited after it."""

    outcome: str
    seconds: float
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The end of asking: the final reply, the attempts that led to it, the seconds of the last one.

    `rode`: it came in the call of another sample, whose attempts these are.
    """

    reply: Reply
    history: tuple[Attempt, ...]
    seconds: float
    rode: bool = False
