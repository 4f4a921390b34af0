"""Parameters are typed; what nobody knows is refused with the nearest known word."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from pipelines.data.config import Share, load, read_params
from pipelines.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.7


@dataclass(frozen=True)
class Params:
    k: int
    languages: tuple[str, ...] = ()
    threshold: float = 0.5
    limit: int | None = None
    allowed: Share = 0.0
    caps: dict[str, int] = field(default_factory=dict)
    sampling: Sampling = Sampling()
    by: Literal["table", "model"] = "table"
    cut: Share | Literal["auto"] = "auto"
    tools: tuple[dict[str, Any], ...] = ()


def test_values_arrive_in_the_declared_types() -> None:
    told = {
        "k": 4,
        "languages": ["fr", "pt"],
        "threshold": 1,
        "caps": {"a": 2},
        "sampling": {"temperature": 0},
    }
    got = load(Params, told, "trit.translate")
    assert got == Params(4, ("fr", "pt"), 1.0, None, 0.0, {"a": 2}, Sampling(0.0))
    assert isinstance(got.threshold, float)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"k": 4, "treshold": 1}, "trit.translate: unknown key 'treshold' (did you mean 'threshold'?)"),
        ({}, "params.yaml: trit.translate: key 'k' is missing"),
        ({"k": "four"}, "params.yaml: trit.translate.k: must be int, is 'four'"),
        ({"k": True}, "params.yaml: trit.translate.k: must be int, is True"),
        ({"k": 1, "languages": "fr"}, "trit.translate.languages: must be"),
        (
            {"k": 1, "sampling": {"temprature": 1}},
            "trit.translate.sampling: unknown key 'temprature' (did you mean",
        ),
        ({"k": 1, "caps": {"a": "b"}}, "trit.translate.caps.a: must be int, is 'b'"),
        ([], "trit.translate: must be a mapping, is list"),
        ({"k": 1, "allowed": 7}, "trit.translate.allowed: must lie in [0, 1], is 7"),
        ({"k": 1, "by": "modle"}, "trit.translate.by: must be one of table, model, is 'modle' (did you mean"),
        ({"k": 1, "cut": 2}, "trit.translate.cut: must lie in [0, 1], is 2"),
        ({"k": 1, "cut": "atuo"}, "trit.translate.cut: must be float, is 'atuo'"),
        ({"k": 1, "tools": [3]}, "trit.translate.tools[0]: must be"),
    ],
)
def test_a_wrong_section_is_refused_by_name_with_a_cure(told: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(Params, told, "trit.translate")  # type: ignore[arg-type]
    assert message in str(error.value)


def test_broken_yaml_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 1\nllm: {a: [\n")
    with pytest.raises(ConfigError, match="params.yaml:3: not valid YAML"):
        read_params(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"k": -1}, "params.yaml: trit.translate.k: must not be negative, is -1"),
        ({"k": 10**30}, "params.yaml: trit.translate.k: must be a number up to 1e+09"),
        (
            {"k": 1, "threshold": float("nan")},
            "trit.translate.threshold: must be a number up to 1e+09, is nan",
        ),
        (
            {"k": 1, "threshold": float("inf")},
            "trit.translate.threshold: must be a number up to 1e+09, is inf",
        ),
        ({"k": 1, "threshold": float("-inf")}, "trit.translate.threshold: must not be negative, is -inf"),
        ({"k": 1, "limit": -5}, "trit.translate.limit: must not be negative, is -5"),
        ({"k": 1, "caps": {"a": -5}}, "trit.translate.caps.a: must not be negative, is -5"),
        (
            {"k": 1, "sampling": {"temperature": -1}},
            "trit.translate.sampling.temperature: must not be negative",
        ),
    ],
)
def test_a_number_that_no_knob_can_have_is_refused(told: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(Params, told, "trit.translate")
    assert message in str(error.value)


def test_a_word_stands_beside_a_number_and_what_a_server_reads_is_kept_as_it_is() -> None:
    tool = {"type": "search", "most": 3, "how": {"deep": [None, True, -1.5]}}
    got = load(Params, {"k": 1, "by": "model", "cut": 0.25, "tools": [tool]}, "trit.translate")
    assert (got.by, got.cut, got.tools) == ("model", 0.25, (tool,))
    assert load(Params, {"k": 1, "cut": "auto"}, "trit.translate").cut == "auto"
