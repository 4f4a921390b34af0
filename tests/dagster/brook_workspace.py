"""A small workspace with a graph of its own, and Dagster over it: the words of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
from ruamel.yaml import YAML

BROOK = Path(__file__).parent / "brook"
ALL = ("brook/ingest", "brook/loud", "brook/tell/fr", "brook/tell/no", "brook/judge", "evaluation/page")
CONFIG = "[core]\n    no_scm = true\n    analytics = false\n    check_update = false\n"


class Brook:
    """A workspace over the small graph, and what a person does in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.words = root / "data" / "raw" / "brook" / "words.txt"

    def lay(self) -> Brook:
        """Writes the workspace as it is before any run."""
        root = self.root
        for name, source in (("dvc.yaml", "graph.yaml"), ("params.yaml", "params.yaml")):
            shutil.copy(BROOK / source, root / name)
        for folder, name in (("pipelines", "work.py"), ("data/raw/brook", "words.txt")):
            (root / folder).mkdir(parents=True)
            shutil.copy(BROOK / name, root / folder / name)
        (root / ".dvc").mkdir()
        (root / ".dvc" / "config").write_text(CONFIG)
        return self

    def set(self, dotted: str, value: Any) -> None:
        """Edits params.yaml."""
        path = self.root / "params.yaml"
        params = YAML().load(path.read_text())
        *above, last = dotted.split(".")
        at = params
        for part in above:
            at = at[part]
        at[last] = value
        with path.open("w") as stream:
            YAML().dump(params, stream)

    def dvc(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A bare `dvc`, as from a shell; its `python` is this one."""
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(
            command, cwd=self.root, text=True, capture_output=True, env=shell(), check=False
        )

    def definitions(self) -> dg.Definitions:
        """Loaded afresh, as a new Dagster process does."""
        from dagster_project.definitions import build

        return build(self.root)

    def materialize(
        self, instance: dg.DagsterInstance, job: str = "all", keys: list[str] | None = None, **config: Any
    ) -> dg.ExecuteInProcessResult:
        selection = None if keys is None else [dg.AssetKey(k.split("/")) for k in keys]
        return self.definitions().resolve_job_def(job).execute_in_process(
            instance=instance, raise_on_error=False, asset_selection=selection, run_config=config or None
        )  # fmt: skip

    def lock(self) -> dict[str, Any]:
        from pipelines.graph import lock

        return lock(self.root)

    def clean(self) -> bool:
        from pipelines.graph import changed

        return not changed(self.root)


def shell() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def made(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """For each asset that was materialised, whether its stage ran."""
    return {m.asset_key.to_user_string(): bool(m.metadata["ran"].value) for m in materializations(result)}


def materializations(result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    events = result.get_asset_materialization_events()
    return [e.step_materialization_data.materialization for e in events]


def staleness(definitions: dg.Definitions, instance: dg.DagsterInstance) -> dict[str, str]:
    """Dagster's own word on each asset: FRESH, STALE or MISSING."""
    from dagster._core.definitions.data_version import CachingStaleStatusResolver
    from dagster._core.loader import LoadingContextForTest

    graph = definitions.get_repository_def().asset_graph
    told = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    return {k.to_user_string(): told.get_status(k).value for k in graph.materializable_asset_keys}
