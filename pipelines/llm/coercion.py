"""Whether a value has the form that a JSON schema asks for, and the one spelling of it that has.

Law: a value that fits stays what it is (an integer comes as an int). One that does not is respelt
only where nothing is lost: "1" for 1, 1 for "1", "true" for true, " Yes " for the one choice "yes".
What then fits the whole schema is taken, anything else is named at fault.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pipelines.errors import ConfigError
from pipelines.llm.lenient import same

DEEPEST = 96  # steps into a schema: it may refer to itself
INTEGER = re.compile(r"[+-]?\d{1,400}", re.ASCII)
NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{1,400})?([eE][+-]?\d{1,3})?", re.ASCII)
FAULT_CHARS = 200


class Form:
    """A JSON schema, checked. Use `form_of`. Raises ConfigError for what is no schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry

        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            what = f"a request's schema is no JSON schema: {error.message[:FAULT_CHARS]}"
            raise ConfigError(what, cure="mend the schema of the stage") from error
        self.schema = schema
        self._validator = kind(schema, registry=Registry())  # an empty registry: nothing is fetched

    def fault(self, value: Any) -> str:
        """What does not fit, in words; "" when all does. Raises ConfigError for a reference to nothing."""
        return self._fault(value, self.schema)

    def shaped(self, value: Any) -> tuple[Any, bool] | None:
        """The value as the schema wants it spelt, and whether that changed it; None if nothing fits."""
        try:
            respelt = self._respelt(value, self.schema, 0)
        except RecursionError:
            return None
        if same(respelt, value):
            return None if self.fault(value) else (respelt, False)
        if not self.fault(value):
            return value, False
        return None if self.fault(respelt) else (respelt, True)

    def _fault(self, value: Any, schema: Any) -> str:
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            error = best_match(self._validator.evolve(schema=schema).iter_errors(value))
        except Unresolvable as unknown:
            raise ConfigError(f"a request's schema refers to nothing: {unknown.ref}") from unknown
        except (RecursionError, OverflowError, re.error) as limit:
            return f"the schema cannot be held against it ({type(limit).__name__})"
        return "" if error is None else f"at {error.json_path}: {error.message}"[:FAULT_CHARS]

    def _respelt(self, value: Any, schema: Any, depth: int) -> Any:
        if depth > DEEPEST or not isinstance(schema, Mapping):
            return value
        if isinstance(ref := schema.get("$ref"), str):
            value = self._respelt(value, self._target(ref), depth + 1)
        for part in schema.get("allOf") or ():
            value = self._respelt(value, part, depth + 1)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                value = self._branch(value, schema[name], depth + 1)
        value = _cast(value, schema)
        if isinstance(value, dict):
            named, rest = schema.get("properties") or {}, schema.get("additionalProperties")
            return {k: self._respelt(v, named.get(k, rest), depth + 1) for k, v in value.items()}
        if isinstance(value, list):
            first = schema.get("prefixItems") or ()
            return [
                self._respelt(v, first[i] if i < len(first) else schema.get("items"), depth + 1)
                for i, v in enumerate(value)
            ]
        return value

    def _branch(self, value: Any, branches: Sequence[Any], depth: int) -> Any:
        """By the first branch that the value fits as it is, else the first that it fits respelt."""
        for branch in branches:
            if not self._fault(value, branch):
                return self._respelt(value, branch, depth)
        for branch in branches:
            respelt = self._respelt(value, branch, depth)
            if not self._fault(respelt, branch):
                return respelt
        return value

    def _target(self, ref: str) -> Any:
        """What a reference within the schema names; None for any other."""
        node: Any = self.schema
        if not ref.startswith("#"):
            return None
        for part in filter(None, ref[1:].split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            node = node.get(name) if isinstance(node, Mapping) else None
        return node


def form_of(schema: Mapping[str, Any]) -> Form:
    """The form of a schema, remembered by its content. Raises ConfigError for what is no schema."""
    try:
        return _remembered(json.dumps(schema, sort_keys=True))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"a request's schema holds what JSON cannot say: {error}") from error


@lru_cache(64)
def _remembered(schema: str) -> Form:
    return Form(json.loads(schema))


def _cast(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value of none of the schema's types as one of them; a whole number as an int."""
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else list(types)
    choices = [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return int(value)
    if choices and not any(same(value, c) for c in choices):
        fitting = [c for c in choices if _means(value, c)]
        return fitting[0] if len(fitting) == 1 else value
    if types and type_of(value) not in types and not (type_of(value) == "integer" and "number" in types):
        return next((cast for kind in types for cast in _casts(value, kind)), value)
    return value


def _means(value: Any, choice: Any) -> bool:
    if isinstance(value, str) and isinstance(choice, str):
        return value.strip().casefold() == choice.strip().casefold()
    return any(same(cast, choice) for cast in _casts(value, type_of(choice)))


def _casts(value: Any, kind: str) -> Iterator[Any]:
    """`value` as a `kind`, if that is but another spelling of it."""
    if kind == "string" and type_of(value) in ("integer", "number", "boolean"):
        yield json.dumps(value)
    if not isinstance(value, str):
        return
    word = value.strip()
    if kind == "integer" and INTEGER.fullmatch(word):
        yield int(word)
    elif kind == "number" and NUMBER.fullmatch(word):
        number = int(word) if INTEGER.fullmatch(word) else float(word)
        if math.isfinite(number):
            yield number
    elif kind == "boolean" and word.casefold() in ("true", "false"):
        yield word.casefold() == "true"
    elif kind == "null" and word.casefold() in ("null", "none"):
        yield None


def type_of(value: Any) -> str:
    """The JSON schema's name of a value's type; a whole number is an integer."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names = {float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]
