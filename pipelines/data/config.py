"""Typed parameters out of params.yaml.

Law: an unknown key or a value of the wrong type is refused with the nearest
known key, before any work starts. Nothing has a second default elsewhere. A
knob is a size, a share, a time or a temperature: finite and never negative.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pipelines.errors import ConfigError, nearest

T = TypeVar("T")
MOST = 10**9  # above it nothing is meant that could be done
MOST_SAMPLES = 10_000  # of one prompt; the papers draw 64 at most


@dataclasses.dataclass(frozen=True)
class Between:
    """The least and the largest value that a number may have, as a note on its type."""

    least: float
    most: float


Share = Annotated[float, Between(0.0, 1.0)]


def read_params(path: Path) -> dict[str, Any]:
    """params.yaml as plain data (safe YAML). Raises ConfigError with the line of a YAML fault."""
    import yaml

    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise ConfigError(
            "no params.yaml here", where=str(path), cure="headrace init DIR makes a workspace"
        ) from e
    except UnicodeDecodeError as e:
        raise ConfigError("not UTF-8", where=str(path)) from e
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"not valid YAML: {getattr(e, 'problem', e)}", where=f"{path.name}{line}") from e
    if not isinstance(value, dict):
        raise ConfigError("must be a mapping of sections", where=path.name)
    return value


def load(cls: type[T], values: Mapping[str, Any] | None, where: str) -> T:
    """An instance of a dataclass from plain data. `where` is the dotted name of the section.

    Raises ConfigError for an unknown key (with the nearest known one), a missing
    key without default, and a value of the wrong type.
    """
    values = {} if values is None else values
    if not isinstance(values, Mapping):
        raise ConfigError(f"must be a mapping, is {type(values).__name__}", where=f"params.yaml: {where}")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise ConfigError(
                f"unknown key {key!r}", where=f"params.yaml: {where}", cure=nearest(str(key), fields)
            )
    hints = get_type_hints(cls, include_extras=True)
    got: dict[str, Any] = {}
    for name, f in fields.items():
        if name in values:
            got[name] = _coerce(hints[name], values[name], f"{where}.{name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ConfigError(f"key {name!r} is missing", where=f"params.yaml: {where}")
    return cls(**got)


def _coerce(hint: Any, value: Any, where: str) -> Any:
    """The value as the type says; ints pass for floats, lists for tuples, nothing else.

    Of a union, None and the words of a Literal pass as they are, anything else as its first other type.
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Literal:
        return _word(args, value, where)
    if origin is Annotated:
        return _within(hint.__metadata__[0], _coerce(args[0], value, where), value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return load(hint, value, where)
    if origin in (Union, types.UnionType):
        return _one_of(args, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_coerce(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {str(k): _coerce(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if hint in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= MOST:
            least = "must not be negative" if value < 0 else f"must be a number up to {MOST:.0e}"
            raise ConfigError(f"{least}, is {value!r}", where=f"params.yaml: {where}")
        if hint is float:
            return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool) == isinstance(value, bool):
        return value
    name = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"must be {name}, is {value!r}", where=f"params.yaml: {where}")


def _one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    words = [h for h in hints if get_origin(h) is Literal]
    if isinstance(value, str) and any(value in get_args(h) for h in words):
        return value
    return _coerce(next(h for h in hints if h is not type(None) and h not in words), value, where)


def _within(bounds: Between, number: Any, told: Any, where: str) -> Any:
    if not bounds.least <= number <= bounds.most:
        what = f"must lie in [{bounds.least:g}, {bounds.most:g}], is {told!r}"
        raise ConfigError(what, where=f"params.yaml: {where}")
    return number


def _word(known: tuple[str, ...], value: Any, where: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    what = f"must be one of {', '.join(known)}, is {value!r}"
    raise ConfigError(what, where=f"params.yaml: {where}", cure=nearest(str(value), known))
