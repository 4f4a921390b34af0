"""Checks the whole of params.yaml against what the stages declare."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.data.bounds import SECTION, check_bounds
from pipelines.data.config import load, read_params
from pipelines.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pipelines.llm.prices import Price

TOP = {"profile": str, "seed": int}
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
USED = re.compile(r"\$\{([a-z_]+)\.([a-z_]+)\}")


def check_params(root: Path, only: str = "") -> dict[str, Any]:
    """params.yaml of a workspace. Raises ConfigError for any key or value that no stage knows.

    `only` limits the look into sections to one engine: a stage needs no other engine's code.
    """
    params = read_params(root / "params.yaml")
    steps, shared = declared(root)
    known = {*TOP, "llm", SECTION, *steps}
    for key, value in params.items():
        if key not in known:
            raise ConfigError(f"unknown key {key!r}", where="params.yaml", cure=nearest(key, known))
        kind = TOP.get(key)
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ConfigError(f"must be {kind.__name__}, is {value!r}", where=f"params.yaml: {key}")
    _llm(params.get("llm") or {})
    check_bounds(params)
    for engine, names in steps.items():
        if only in ("", engine):
            _engine(engine, params.get(engine), names, shared.get(engine, set()))
    return params


def prices_of(root: Path) -> dict[str, Price]:
    """What the models of this workspace cost now, by `llm.prices`; none where there is no params.yaml."""
    from pipelines.llm.settings import Settings

    if not (root / "params.yaml").is_file():
        return {}
    return load(Settings, read_params(root / "params.yaml").get("llm") or {}, "llm").prices


def read_graph(root: Path) -> dict[str, Any]:
    """The stages of dvc.yaml as plain data, matrices and `${...}` as they stand. Raises ConfigError."""
    import yaml

    try:
        text = (root / "dvc.yaml").read_text(encoding="utf-8")
        return dict(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"])
    except OSError as e:
        raise ConfigError(
            "no dvc.yaml here", where=str(root), cure="headrace init DIR makes a workspace"
        ) from e
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as e:
        raise ConfigError("is not a valid graph", where="dvc.yaml", cure="dvc stage list says more") from e


def declared(root: Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Steps of each engine in dvc.yaml, and the keys beside them that it uses (`${trit.languages}`)."""
    steps: dict[str, set[str]] = {}
    shared: dict[str, set[str]] = {}
    for stage, entry in read_graph(root).items():
        engine, _, step = stage.partition(".")
        steps.setdefault(engine, set()).add(step)
        for section, key in USED.findall(str(entry)):
            shared.setdefault(section, set()).add(key)
    return steps, shared


def _llm(section: Any) -> None:
    from pipelines.llm.settings import Settings

    if isinstance(section, Mapping) and "backend" in section:
        cure = "name it in the section of the stage, or set HEADRACE_LLM_BACKEND"
        raise ConfigError("unknown key 'backend'", where="params.yaml: llm", cure=cure)
    load(Settings, section, "llm")


def _engine(engine: str, section: Any, names: set[str], shared: set[str]) -> None:
    if section is None:
        section = {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"must be a mapping, is {section!r}", where=f"params.yaml: {engine}")
    for key in section:
        if key not in names | shared:
            where = f"params.yaml: {engine}"
            raise ConfigError(f"unknown key {key!r}", where=where, cure=nearest(str(key), names | shared))
    for key in sorted(shared):
        _entries(section.get(key), f"params.yaml: {engine}.{key}")
    for name in sorted(names):
        module = importlib.import_module(f"pipelines.{engine}.{name}")
        load(module.Params, section.get(name), f"{engine}.{name}")


def _entries(value: Any, where: str) -> None:
    """What dvc.yaml runs a stage for each of: distinct words, as a shell and a path take them."""
    if not isinstance(value, list) or not value:
        raise ConfigError(f"must be a list of at least one word, is {value!r}", where=where)
    for word in value:
        if not isinstance(word, str) or not WORD.fullmatch(word):
            raise ConfigError(
                f"{word!r} is no plain word", where=where, cure="quote it if YAML reads it else"
            )
    twice = sorted({word for word in value if value.count(word) > 1})
    if twice:
        raise ConfigError(f"{twice[0]!r} stands twice", where=where)
