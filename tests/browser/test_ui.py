"""Dagster, MLflow and the report in a real browser, as a person uses them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_project.serve import environment, servers, start, stop, until_up
from pipelines.graph import Stage, data_version, lock, stages

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(2400)]  # the demo may be made first
CHROMIUM = os.environ.get("HEADRACE_CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
PATIENCE_MS = 600_000


class Ui:
    """The running servers of one workspace, and a page to look at them."""

    def __init__(self, root: Path, dagster: str, mlflow: str, page: Any, shots: Path) -> None:
        self.root, self.dagster, self.mlflow, self.page, self.shots = root, dagster, mlflow, page, shots

    def shot(self, name: str) -> None:
        self.page.wait_for_timeout(1500)  # until what is drawn has come to rest
        self.page.screenshot(path=self.shots / f"{name}.png")

    def stage(self, name: str) -> Stage:
        return next(s for s in stages(self.root) if s.name == name)

    def version(self, name: str) -> str:
        version = data_version(lock(self.root)[name], self.stage(name))
        assert version is not None
        return version


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Ui]:
    """A copy of the demo that the command line ran, with both servers over it."""
    if not Path(CHROMIUM).is_file():
        pytest.skip(f"no Chromium at {CHROMIUM}: set HEADRACE_CHROMIUM")
    from playwright.sync_api import sync_playwright

    told = os.environ.get("HEADRACE_UI_WORKSPACE") or request.getfixturevalue("demo").folder
    root = tmp_path_factory.mktemp("ui") / "workspace"
    shutil.copytree(told, root, symlinks=True, ignore=shutil.ignore_patterns("models"))
    headrace("run", cwd=root)
    shots = Path(os.environ.get("HEADRACE_SCREENSHOTS", str(tmp_path_factory.mktemp("shots"))))
    shots.mkdir(parents=True, exist_ok=True)
    wanted = servers(root, free_port(), free_port())
    running = start(wanted, root, environment(root, wanted[0].port))
    try:
        until_up(wanted, running)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(PATIENCE_MS)
            yield Ui(root, wanted[0].url, wanted[1].url, page, shots)
            browser.close()
    finally:
        stop(running)


def headrace(*arguments: str, cwd: Path | None = None) -> None:
    subprocess.run([sys.executable, "-m", "pipelines", *arguments], cwd=cwd, check=True)


def test_the_asset_graph_shows_every_group_and_its_stages(ui: Ui) -> None:
    ui.page.goto(f"{ui.dagster}/asset-groups")
    for group in ("sources", "evergreen", "egoavu", "trit", "cbu", "training", "evaluation"):
        ui.page.get_by_text(group, exact=True).first.wait_for()
    ui.shot("1-groups")
    ui.page.goto(f"{ui.dagster}/locations/__repository__@headrace/asset-groups/evergreen/lineage")
    for step in ("ingest", "synthesize", "verify", "translate", "aliases", "curate", "classify", "refresh"):
        ui.page.get_by_text(step, exact=True).first.wait_for()
    ui.shot("2-evergreen")


def test_an_asset_shows_its_rows_and_its_checks(ui: Ui) -> None:
    ui.page.goto(f"{ui.dagster}/assets/evergreen/refresh")
    ui.page.get_by_text("preview", exact=True).first.wait_for()
    ui.page.get_by_text("accepted", exact=True).first.wait_for()
    ui.page.get_by_text("preview", exact=True).first.scroll_into_view_if_needed()
    ui.shot("3-asset")
    ui.page.goto(f"{ui.dagster}/assets/evergreen/refresh?view=checks")
    ui.page.get_by_text("outcomes_add_up").first.wait_for()
    ui.page.get_by_text("gate", exact=True).first.wait_for()
    ui.page.get_by_text("fresh_answers").first.wait_for()
    ui.shot("4-checks")


def test_an_asset_shows_how_its_answers_changed(ui: Ui) -> None:
    ui.page.goto(f"{ui.dagster}/assets/evergreen/refresh")
    row = ui.page.locator("tr").filter(has_text="plot/refresh_history").first
    row.get_by_text("Show Markdown").click()
    plot = ui.page.locator("img[alt=refresh_history]").first
    plot.wait_for()
    assert plot.evaluate("image => image.naturalWidth") > 500, "the picture is drawn, not a broken one"
    ui.shot("9-history")


def test_the_curated_questions_show_what_was_counted_again(ui: Ui) -> None:
    ui.page.goto(f"{ui.dagster}/assets/evergreen/curate?view=checks")
    for check in ("no_leak", "no_conflict", "class_balance", "outcomes_add_up"):
        ui.page.get_by_text(check, exact=True).first.wait_for()
    ui.page.get_by_text("Succeeded").first.wait_for()
    ui.shot("10-counted-again")


def test_materialize_makes_a_new_version_of_the_data(ui: Ui) -> None:
    before = ui.version("evergreen.filter")
    headrace_set(ui.root, "evergreen.filter.threshold", 0.9)
    ui.page.goto(f"{ui.dagster}/assets/evergreen/filter")
    ui.page.get_by_text(re.compile("^Materialize")).first.click()
    ui.page.wait_for_timeout(1000)
    ui.shot("5-materialize")
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while dagsters_version(ui, ["evergreen", "filter"]) in ("", before):
        assert time.monotonic() < deadline, "never materialized"
        ui.page.wait_for_timeout(1000)
    after = ui.version("evergreen.filter")
    assert after != before
    ui.page.get_by_text(after).first.wait_for()
    ui.page.get_by_text(after).first.scroll_into_view_if_needed()
    ui.shot("6-new-version")
    assert dagsters_version(ui, ["evergreen", "filter"]) == after


QUERY = """query Latest($key: [String!]!) {
  assetOrError(assetKey: {path: $key}) {
    ... on Asset { assetMaterializations(limit: 1) { tags { key value } } }
  }
}"""


def dagsters_version(ui: Ui, key: list[str]) -> str:
    """The DataVersion that Dagster keeps of the latest materialisation; "" while it knows of none."""
    body = {"query": QUERY, "variables": {"key": key}}
    answer = ui.page.request.post(f"{ui.dagster}/graphql", data=body).json()
    found = answer["data"]["assetOrError"].get("assetMaterializations") or [{"tags": []}]
    return str({t["key"]: t["value"] for t in found[0]["tags"]}.get("dagster/data_version", ""))


def headrace_set(root: Path, dotted: str, value: Any) -> None:
    from ruamel.yaml import YAML

    path = root / "params.yaml"
    params = YAML().load(path.read_text())
    *above, last = dotted.split(".")
    at = params
    for part in above:
        at = at[part]
    at[last] = value
    with path.open("w") as stream:
        YAML().dump(params, stream)


def test_mlflow_shows_the_run_of_the_evaluation(ui: Ui) -> None:
    [experiment] = [
        e for e in ask(ui, "experiments/search", max_results=9)["experiments"] if e["name"] == "headrace"
    ]
    number = experiment["experiment_id"]
    runs = ask(ui, "runs/search", experiment_ids=[number], max_results=50)["runs"]
    run = next(r["info"] for r in runs if "evaluation" in r["info"]["run_name"])
    ui.page.goto(f"{ui.mlflow}/#/experiments/{number}/runs/{run['run_id']}")
    ui.page.get_by_text(run["run_name"]).first.wait_for()
    ui.page.get_by_text("Metrics").first.wait_for()
    ui.shot("7-mlflow-run")


def test_the_page_that_is_printed_for_mlflow_is_the_table_of_the_runs(ui: Ui) -> None:
    ui.page.goto(ui.mlflow + servers(ui.root, 1, 2)[1].start)
    ui.page.get_by_text("matching runs").first.wait_for()
    assert "/runs?workflowType=machine_learning" in ui.page.url
    ui.shot("7-mlflow-runs")


def ask(ui: Ui, what: str, **body: Any) -> dict[str, Any]:
    """MLflow's own REST interface."""
    answer = ui.page.request.post(f"{ui.mlflow}/api/2.0/mlflow/{what}", data=body)
    assert answer.ok, answer.text()
    return dict(answer.json())


def test_the_report_reads_alone(ui: Ui) -> None:
    ui.page.goto((ui.root / "reports" / "index.html").as_uri())
    ui.page.get_by_text("evergreen").first.wait_for()
    ui.shot("8-report")
