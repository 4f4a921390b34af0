"""Each engine's gate refuses three artifacts of damaged meaning, in a shell and in Dagster.

The stage is the real one, in its own process; what it made is damaged there just
before its gate judges it (tests/dagster/damaging).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from brook_workspace import made, shell
from damaging.damages import DAMAGES, Damage

from pipelines.graph import Stage, changed, lock, stages
from tests.llm.scripted_server import ScriptedServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
HERE = Path(__file__).parent
ANSWERS = HERE.parent / "chaos" / "answers.py"
BELOW = "evaluation/report"
EVERY = [(stage, name) for stage, found in DAMAGES.items() for name in found]
SMALL = (  # what the gates do not look at is made as small as it can be
    "trit.languages=[fr]",
    "training.evergreen.head.networks=1",
    "training.evergreen.head.epochs=1",
    "training.evergreen.head.min_steps=1",
)


class Workspace:
    """A workspace with every engine's last artifact made, and the two drivers over it."""

    def __init__(self, root: Path) -> None:
        from dagster_project.definitions import build

        self.root = root
        self.stages = {s.name: s for s in stages(root)}
        self.job = build(root).resolve_job_def("all")

    def dvc(self, stage: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dvc", "repro", "-f", "-s", stage]
        return subprocess.run(
            command, cwd=self.root, text=True, capture_output=True, env=shell(), check=False
        )

    def dagster(self, instance: dg.DagsterInstance, stage: str, *below: str) -> dg.ExecuteInProcessResult:
        key = self.stages[stage].key
        return self.job.execute_in_process(
            instance=instance,
            raise_on_error=False,
            asset_selection=[dg.AssetKey(list(key)), *(dg.AssetKey(k.split("/")) for k in below)],
            run_config={"ops": {"__".join(key): {"config": {"force": True}}}},
        )

    def folder(self, stage: str) -> Path:
        return self.root / "data" / self.stages[stage].folder

    def held(self, stage: str) -> Path:
        return self.root / ".headrace" / "held" / self.stages[stage].folder

    def verdict(self, stage: str) -> dict[str, Any]:
        told = json.loads((self.folder(stage) / "outcomes.json").read_text())
        return dict(told["gate"])

    def files(self, stage: str) -> dict[str, bytes]:
        """The outs of a stage, by name."""
        outs = (self.root / out for out in self.stages[stage].outs)
        return {p.name: p.read_bytes() for p in outs if p.is_file()}

    def assert_refused(self, stage: str, damage: Damage) -> str:
        """No rows where the graph reads them, rows set apart, a verdict that names it; its words."""
        assert not (self.folder(stage) / "rows.parquet").exists()
        assert (self.held(stage) / "rows.parquet").is_file()
        verdict = self.verdict(stage)
        assert verdict["passed"] is False
        [words] = [
            c["meaning"] for c in verdict["checks"] if c["measure"] == damage.measure and not c["passed"]
        ]
        assert stage in changed(self.root)
        return str(words)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Made by the command line, with a scripted endpoint for a model, which lives as long as the tests."""
    root = tmp_path_factory.mktemp("gates") / "workspace"
    with ScriptedServer(answers=ANSWERS) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_LLM_BACKEND", "openai")
        patch.setenv("HEADRACE_LLM_BASE_URL", server.url)
        headrace("init", str(root), *(f"--set={s}" for s in SMALL))
        headrace("run", *DAMAGES, cwd=root)
        yield Workspace(root)


@pytest.fixture(scope="module")
def at_first(sound: Workspace) -> dict[str, dict[str, bytes]]:
    return {stage: sound.files(stage) for stage in DAMAGES}


@pytest.fixture
def damaged(
    sound: Workspace, at_first: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Damage]:
    """The stage and the damage that it will take; nothing that an earlier refusal held lies about."""
    stage, name = request.param
    shutil.rmtree(sound.held(stage), ignore_errors=True)
    monkeypatch.setenv("PYTHONPATH", str(HERE / "damaging"))
    monkeypatch.setenv("HEADRACE_TEST_DAMAGE", name)
    return stage, DAMAGES[stage][name]


def headrace(*arguments: str, cwd: Path | None = None) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pipelines", *arguments], cwd=cwd or HERE.parents[1], check=False,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("damaged", EVERY, indirect=True, ids=[f"{s}: {n}" for s, n in EVERY])
def test_damaged_meaning_stops_dvc(sound: Workspace, damaged: tuple[str, Damage]) -> None:
    stage, damage = damaged
    ended = sound.dvc(stage)
    assert ended.returncode != 0
    words = sound.assert_refused(stage, damage)
    assert f"the gate refused the rows: {words}" in ended.stderr or f"; {words} (" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("damaged", EVERY, indirect=True, ids=[f"{s}: {n}" for s, n in EVERY])
def test_damaged_meaning_stops_dagster_and_what_is_below(
    sound: Workspace, damaged: tuple[str, Damage], instance: dg.DagsterInstance
) -> None:
    stage, damage = damaged
    result = sound.dagster(instance, stage, BELOW)
    assert not result.success
    words = sound.assert_refused(stage, damage)
    [gate] = result.get_asset_check_evaluations()
    assert gate.check_name == "gate" and gate.blocking and not gate.passed
    assert words in str(gate.description)
    step, below = step_of(sound.stages[stage]), BELOW.replace("/", "__")
    assert [e.step_key for e in result.all_events if e.is_step_start] == [step]
    assert [e.step_key for e in result.all_events if e.is_step_failure] == [step]
    logged = [e.user_message for e in instance.all_logs(result.run_id)]
    assert f"Dependencies for step {below} failed: ['{step}']. Not executing." in logged
    assert made(result) == {}


@pytest.mark.parametrize("stage", DAMAGES)
def test_what_is_sound_passes_again_in_both_drivers_with_the_same_bytes(
    sound: Workspace, at_first: dict[str, dict[str, bytes]], stage: str, instance: dg.DagsterInstance
) -> None:
    ended = sound.dvc(stage)
    assert ended.returncode == 0, ended.stderr
    assert sound.verdict(stage)["passed"] is True and sound.files(stage) == at_first[stage]
    locked = lock(sound.root)[stage]
    result = sound.dagster(instance, stage)
    assert result.success and made(result) == {sound.stages[stage].folder: True}
    judged = result.get_asset_check_evaluations()  # the sample's answers are years old: a warning says so
    assert all(c.passed for c in judged if c.severity is dg.AssetCheckSeverity.ERROR)
    assert {c.check_name: c.passed for c in judged}["gate"]
    assert sound.files(stage) == at_first[stage] and lock(sound.root)[stage] == locked
    assert stage not in changed(sound.root)


def step_of(stage: Stage) -> str:
    return "__".join(stage.key)
