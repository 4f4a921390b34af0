"""What dvc.lock says.

Law: it is read whole, or not at all. A bare `dvc` writes it in place, under its own lock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError
from pipelines.graph.mending import has_hashes
from pipelines.graph.waiting import Busy, dvc_lock

if TYPE_CHECKING:
    from pipelines.graph.stages import Stage

LOOKS = 5  # in a second, at one that is being written


def lock(root: Path) -> dict[str, Any]:
    """The stages of dvc.lock as plain data; empty before the first run.

    It is read under DVC's own lock or, where that cannot be had, until it is whole.
    Raises ConfigError when it is torn.
    """
    if not (root / "dvc.lock").is_file():
        return {}
    try:
        with dvc_lock(root):
            return _entries(root, looks=1)
    except (Busy, OSError):  # something holds it for long, or nothing may be written here
        return _entries(root, looks=LOOKS)


def data_version(entry: Mapping[str, Any], stage: Stage) -> str | None:
    """MD5 of the stage's rows (or model) as its dvc.lock entry says."""
    return next((o["md5"] for o in entry.get("outs", []) if o["path"] == stage.version_path), None)


def _entries(root: Path, looks: int) -> dict[str, Any]:
    for left in reversed(range(looks)):
        try:
            entries = read_yaml(root, "dvc.lock", "take it from version control, or delete it").get("stages")
            if has_hashes(entries or {}):
                return dict(entries or {})
        except ConfigError:
            if not left:
                raise
        if left:
            time.sleep(1 / LOOKS)
    raise ConfigError("is cut short", where="dvc.lock", cure="headrace run mends it")


def read_yaml(root: Path, name: str, cure: str) -> dict[str, Any]:
    """A file of DVC's. YAML 1.2 as DVC writes it: `no` is a text there, 1e-05 a number."""
    import yaml

    try:
        value = yaml.load((root / name).read_text(encoding="utf-8"), _yaml12())
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError("is not valid YAML", where=name, cure=cure) from e
    return value if isinstance(value, dict) else {}


@cache
def _yaml12() -> Any:
    import yaml

    class Loader(yaml.CSafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {}
    plain = {
        "null": (r"~|null|Null|NULL|", "~nN\0"),
        "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
        "int": (r"[-+]?[0-9]+", "-+0123456789"),
        "float": (
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
            "-+.0123456789",
        ),
        "merge": (r"<<", "<"),
    }
    for tag, (form, first) in plain.items():
        starts = [c if c != "\0" else "" for c in first]
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{form})$"), starts)
    return Loader
