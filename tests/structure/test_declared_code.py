"""dvc.yaml declares the code and the outs that its stages really have."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from pipelines.cli import main
from pipelines.cli.graph import with_code
from pipelines.cli.params import check_params
from pipelines.closure import closure
from pipelines.evaluation.answers import READS
from pipelines.evaluation.report import ENGINES

ROOT = Path(__file__).parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def test_dvc_yaml_names_the_code_that_each_stage_reaches() -> None:
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert with_code(text, ROOT) == text, "run `headrace graph --write`"


def test_params_yaml_holds_every_knob_and_no_other() -> None:
    params = check_params(ROOT)
    for name in STAGES:
        engine, step = name.split(".")
        fields = importlib.import_module(f"pipelines.{engine}.{step}").Params.__dataclass_fields__
        missing = set(fields) - set(params[engine].get(step) or {})
        assert not missing, f"{name}: {sorted(missing)} stand in no line of params.yaml"


def test_a_stage_that_asks_under_a_schema_depends_on_whether_it_is_sent() -> None:
    for name, stage in STAGES.items():
        own = [ROOT / d for d in stage["deps"] if str(d).endswith(".py") and "/asking.py" not in str(d)]
        asks = any("step.values(" in path.read_text(encoding="utf-8") for path in own)
        assert asks == ("llm.constrained" in stage.get("params", [])), name


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_stage_says_what_it_is_and_runs_as_a_module(name: str) -> None:
    stage = STAGES[name]
    assert stage["desc"].endswith(".")
    assert stage["cmd"].split(" ${")[0] == f"python -m pipelines {name}"
    assert {"group", "kinds", "owner"} <= stage["meta"].keys()


def test_a_file_named_by_a_string_beside_the_module_is_part_of_its_code(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "toy"
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "ask.txt").write_text("x")
    (folder / "step.py").write_text("P = 'prompts/ask.txt'\nQ = 'prompts/gone.txt'\n")
    assert closure(folder / "step.py", tmp_path) == ["pipelines/toy/prompts/ask.txt", "pipelines/toy/step.py"]


def test_the_readme_draws_the_graph_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["graph", "--mermaid"]) == 0
    drawn = capsys.readouterr().out
    assert f"```mermaid\n{drawn}```" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(STAGES))
def test_what_a_stage_has_from_a_model_reaches_the_answers_of_the_graph(name: str) -> None:
    """A stage that embeds has the keys as an out; one that asks or embeds is read by evaluation.answers."""
    folder = f"data/{name.replace('.', '/')}"
    code = (ROOT / "pipelines" / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
    outs = [next(iter(o)) if isinstance(o, dict) else o for o in STAGES[name]["outs"]]
    embeds = "step.embed(" in code
    assert embeds == any(o.endswith("/embedded.parquet") for o in outs)
    if embeds or "step.ask(" in code:
        deps = STAGES["evaluation.answers"]["deps"]
        needed = {f"{folder}/embedded.parquet"} if embeds else {f"{folder}/rows.parquet"}
        assert folder in deps or needed <= set(deps)
        assert f"{name.replace('.', '/')}" in {r.removesuffix("/*") for r in READS}


def test_the_report_counts_what_became_of_the_items_of_every_stage() -> None:
    counted = {step.removesuffix("/*") for engine in ENGINES for step in engine.steps}
    assert counted == {n.replace(".", "/") for n in STAGES} - {"evaluation/report", "evaluation/answers"}
    deps = STAGES["evaluation.report"]["deps"]
    missing = [s for s in counted if not any(d in (f"data/{s}", f"data/{s}/outcomes.json") for d in deps)]
    assert missing == []
