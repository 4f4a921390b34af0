"""What a model's name means to vLLM: where its weights lie, and its identity in every key.

Law: the identity is a hash of the weights, or a name and revision, never a host, and it is known
without vLLM: answers that are stored need no environment. A registered model is served from its
GGUF's weights converted to bfloat16, so its answers are not those of the GGUF: `:bf16`.
What a joined server serves is what `llm.vllm.weights` says of it, else its name there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import ConfigError, EnvironmentFault, nearest
from pipelines.llm.backends.vllm_settings import VLLM
from pipelines.llm.models import MODELS_VARIABLE, REGISTRY, Model, models_dir, weights
from pipelines.llm.verified import known_sha256, sha256_of

CONVERSION = "bf16"  # to be changed with whatever gguf_to_hf.py changes in the weights or the tokens
MANIFEST = "headrace.json"  # written last: a folder that has it is whole
TAIL_CHARS = 400
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?")
PROJECT = Path(__file__).resolve().parents[3]
ENVIRONMENT = ".venv-vllm"
NOT_BUILT = "the vLLM environment is not built (make vllm)"
# No child needs them, whichever endpoint they are for.
KEY_VARIABLES = ("HEADRACE_LLM_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True)
class Source:
    """A model as vLLM takes it. `folder` is None for a registered one that is still to be converted."""

    name: str
    identity: str
    registered: Model | None = None
    folder: Path | None = None
    hub: str = ""
    revision: str = ""


def source(name: str, settings: VLLM) -> Source:
    """What `name` is. Reads the weights of a folder once, to hash them. Raises ConfigError."""
    told = settings.weights.get(name, "")
    suffix = f" {settings.telling}" if settings.telling and not settings.urls else ""
    if not told and settings.urls:
        return Source(name, f"name:{name}")
    if not told and name in REGISTRY:
        chosen = REGISTRY[name]
        return Source(name, f"{chosen.identity}:{CONVERSION}{suffix}", registered=chosen)
    folder = Path(told or name).expanduser()
    if (told or "/" in name) and folder.is_dir():
        return Source(name, f"sha256:{folder_hash(folder)}{suffix}", folder=folder.absolute())
    if HUB_NAME.fullmatch(told or name):
        hub, _, revision = (told or name).partition("@")
        return Source(name, f"name:{told or name}{suffix}", hub=hub, revision=revision)
    known = [*REGISTRY, *settings.weights]
    if told:
        what = f"{told!r} is no folder and no name of a hub"
        raise ConfigError(
            what, where=f"params.yaml: llm.vllm.weights.{name}", cure="give a folder, or ORG/NAME@REVISION"
        )
    raise ConfigError(
        f"unknown model {name!r}", cure=f"{nearest(name, known)}; or add it to llm.vllm.weights"
    )


def folder_hash(folder: Path) -> str:
    """SHA-256 over the names and hashes of a model folder's files; 64 hex digits."""
    files = {f.name: f for f in folder.iterdir() if f.is_file() and not f.name.startswith(".")}
    files = {n: f for n, f in files.items() if n != MANIFEST and not n.lower().endswith(".md")}
    if "config.json" not in files:
        raise ConfigError("is no model folder: it has no config.json", where=str(folder))
    hashes = {name: known_sha256(models_dir(), path) for name, path in files.items()}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def environment(settings: VLLM) -> Path:
    """The interpreter that has vLLM. Raises EnvironmentFault."""
    if settings.python:
        if not (told := Path(settings.python).expanduser()).is_file():
            cure = "set llm.vllm.python to an interpreter whose environment has vllm"
            raise EnvironmentFault("there is no such interpreter", where=settings.python, cure=cure)
        return told.absolute()  # not resolved: a link into a venv is what makes it that venv's
    built = PROJECT / ENVIRONMENT
    if not (built / ".ready").is_file():
        raise EnvironmentFault(NOT_BUILT, cure="or set llm.vllm.urls or llm.vllm.python")
    return built / "bin" / "python"


def converted(chosen: Model, python: Path) -> Path:
    """The folder of a registered model's weights for vLLM, made once. Raises EnvironmentFault."""
    target = models_dir().absolute() / f"{chosen.name}-{CONVERSION}"
    if _whole(target, chosen):
        return target
    gguf = weights(chosen).absolute()
    partial = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        _convert(python, gguf, partial, chosen)
        files = {f.name: sha256_of(f) for f in sorted(partial.iterdir())}
        manifest = {"source": chosen.sha256, "files": files}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
        partial.chmod(0o755)
        if target.exists() and not _whole(target, chosen):
            shutil.rmtree(target)
        with contextlib.suppress(OSError):  # another process was first: its folder is as good
            partial.rename(target)
    except OSError as error:
        cure = f"free {4 * chosen.size // 1_000_000} MB there or set {MODELS_VARIABLE}"
        what = f"cannot write the converted weights: {error.strerror}"
        raise EnvironmentFault(what, where=str(target), cure=cure) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    if not _whole(target, chosen):
        raise EnvironmentFault(
            "the converted weights are not whole", where=str(target), cure="remove it and run again"
        )
    return target


def _convert(python: Path, gguf: Path, folder: Path, chosen: Model) -> None:
    script = Path(__file__).parents[1] / "gguf_to_hf.py"
    done = subprocess.run(
        [python, "-I", script, gguf, folder], env=child_environment(), capture_output=True, check=False
    )
    if done.returncode:
        tail = " ".join(done.stderr.decode("utf-8", "replace").split())[-TAIL_CHARS:]
        what = f"{chosen.title} cannot be converted (exit {done.returncode}): {tail}"
        raise EnvironmentFault(what, where=str(gguf), cure="free memory, or run `make vllm` again")


def _whole(folder: Path, chosen: Model) -> bool:
    """Whether a converted folder is of these weights and as it was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return bool(manifest["source"] == chosen.sha256) and all(
            known_sha256(models_dir(), folder / name) == sha256 for name, sha256 in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def child_environment() -> dict[str, str]:
    """The environment of whatever runs vLLM's libraries: no keys, no Python path of ours, no network."""
    kept = {k: v for k, v in os.environ.items() if k not in KEY_VARIABLES and k != "PYTHONPATH"}
    return kept | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
