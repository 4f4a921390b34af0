"""The bounds of an engine's artifacts: section `checks` of params.yaml, which no stage reads.

Law: an engine with bounds has a module `bounds` with a dataclass `Bounds`; its defaults hold where
params.yaml says nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pipelines.data.config import load
from pipelines.errors import ConfigError, nearest

SECTION = "checks"
ENGINES = ("evergreen",)  # that have bounds


def bounds_of(params: Mapping[str, Any], engine: str) -> Any:
    """The `Bounds` of an engine. Raises ConfigError for a key or value that it does not know."""
    told = params.get(SECTION)
    if told is not None and not isinstance(told, Mapping):
        raise ConfigError(f"must be a mapping, is {told!r}", where=f"params.yaml: {SECTION}")
    kind = importlib.import_module(f"pipelines.{engine}.bounds").Bounds
    return load(kind, (told or {}).get(engine), f"{SECTION}.{engine}")


def check_bounds(params: Mapping[str, Any]) -> None:
    """Raises ConfigError for what `checks` says and no engine knows."""
    told = params.get(SECTION)
    for engine in told if isinstance(told, Mapping) else ():
        if engine not in ENGINES:
            raise ConfigError(
                f"unknown key {engine!r}", where=f"params.yaml: {SECTION}", cure=nearest(str(engine), ENGINES)
            )
    for engine in ENGINES:
        bounds_of(params, engine)
