"""Weights are what their SHA-256 says, or they are not used."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm import models
from pipelines.llm.models import REGISTRY, Model, model, weights

PARTS = {"carrier-part1": b"GGUF first ", "carrier-part2": b"second ", "carrier-part10": b"tenth"}
JOINED = b"".join(PARTS.values())


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model in three installed packages that cannot be imported."""
    site = tmp_path / "site"
    for number, (name, part) in enumerate(PARTS.items()):
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file = site / name / "data" / f"part{number:02}.bin"
        file.parent.mkdir(parents=True)
        file.write_bytes(part)
        (site / name / "__init__.py").write_text("raise ImportError('a carrier was imported')")
        (info / "RECORD").write_text(f"{name}/data/part{number:02}.bin,,\n{name}/__init__.py,,\n")
    monkeypatch.syspath_prepend(site)
    return replace(
        REGISTRY["qwen2.5-coder-0.5b"],
        name="carried",
        parts=tuple(PARTS),
        version="1.0",
        size=len(JOINED),
        sha256=hashlib.sha256(JOINED).hexdigest(),
    )


def test_parts_are_joined_in_order_and_verified(carried: Model, tmp_path: Path) -> None:
    path = weights(carried, tmp_path / "models")
    assert path.read_bytes() == JOINED
    assert sorted(p.name for p in path.parent.iterdir()) == ["carried.gguf", "verified.json"]


def test_a_joined_file_is_hashed_once_and_again_when_it_changes(
    carried: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, hashed = tmp_path / "models", []
    path = weights(carried, folder)
    sha256_of = models.sha256_of
    monkeypatch.setattr(models, "sha256_of", lambda p: hashed.append(p) or sha256_of(p))
    assert weights(carried, folder) == path and hashed == []
    path.write_bytes(JOINED[:-1] + b"!")
    os.utime(path, ns=(1, 1))
    with pytest.raises(EnvironmentFault, match=r"weights of carried have SHA-256 .*remove .*carried\.gguf"):
        weights(carried, folder)
    assert hashed == [path]


def test_parts_of_the_wrong_hash_leave_no_file(carried: Model, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"have SHA-256 .*, not 0000.*make models"):
        weights(replace(carried, sha256="0" * 64), tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_missing_carrier_names_the_package_and_the_command(carried: Model, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"package carrier-part3 is absent \(run `make models`\)"):
        weights(replace(carried, parts=(*carried.parts, "carrier-part3")), tmp_path)


def test_a_folder_that_cannot_be_made_is_named(carried: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"cannot write the weights.*HEADRACE_MODELS"):
        weights(carried, tmp_path / "file" / "models")


def test_an_unknown_model_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'gemma-270m' \(did you mean 'gemma3-270m'\?\)"):
        model("gemma-270m")
    assert main(["models", "fetch", "qwen2.5-coder-15b"]) == 1
    assert "did you mean 'qwen2.5-coder-1.5b'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_the_default_models_packages_are_installed_as_registered(name: str) -> None:
    known = REGISTRY[name]
    assert {metadata.version(part) for part in known.parts} == {known.version}
    assert sum(path.stat().st_size for path in models._carried(known)) == known.size
