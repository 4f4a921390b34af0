"""Who stands on whom: no import runs up a floor, none runs in a circle."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from pipelines.closure import imports

ROOT = Path(__file__).parents[2]
FLOORS = {
    0: {"pipelines", "pipelines.errors", "pipelines.environment"},
    1: {"pipelines.data", "pipelines.llm"},
    2: {
        "pipelines.step",
        "pipelines.asking",
        "pipelines.gates",
        "pipelines.graph",
        "pipelines.tracking",
        "pipelines.closure",
        "pipelines.lineage",
        "pipelines.publish",
        "pipelines.pace",
        "pipelines.progress",
        "pipelines.tracking_figures",
        "pipelines.tracking_store",
    },
    3: {f"pipelines.{e}" for e in ("evergreen", "egoavu", "trit", "cbu", "training", "evaluation")},
    4: {"pipelines.cli", "pipelines.__main__", "pipelines.bench", "assets", "dagster_project"},
}
LEVEL = {
    ("pipelines.step", "pipelines.gates"),
    ("pipelines.step", "pipelines.publish"),
    ("pipelines.asking", "pipelines.gates"),
    ("pipelines.asking", "pipelines.step"),
    ("pipelines.asking", "pipelines.pace"),
    ("pipelines.asking", "pipelines.progress"),
    ("pipelines.progress", "pipelines.pace"),
    ("pipelines.tracking_figures", "pipelines.progress"),
    ("pipelines.tracking", "pipelines.tracking_store"),
    ("pipelines.tracking_figures", "pipelines.tracking"),
    ("dagster_project", "assets"),
    ("pipelines.cli", "pipelines.bench"),
}
LEVEL |= {("pipelines.__main__", "pipelines.cli"), ("pipelines.cli", "dagster_project")}
ONE_HOME = {
    "dvc": "pipelines/graph/",
    "mlflow": "pipelines/tracking",
    "great_expectations": "pipelines/gates/suite.py",
}
OUR_PACKAGES = ("pipelines", "assets", "dagster_project")


def sources() -> list[Path]:
    return [p for top in OUR_PACKAGES for p in sorted((ROOT / top).rglob("*.py"))]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[0] if parts[0] != "pipelines" else ".".join(parts[:2])


def floor_of(room: str) -> int:
    return next(n for n, rooms in FLOORS.items() if room in rooms)


MODULES = {module_of(p): p for p in sources()}


def arrows(path: Path, *, typing: bool = True) -> set[str]:
    """Modules of ours that a file imports, wherever the import stands; `typing` for the type checker too."""
    own = module_of(path)
    found = set()
    for package in OUR_PACKAGES:
        for name in imports(path, ROOT, package, typing=typing):
            target = name if name in MODULES else name.rpartition(".")[0]
            if target in MODULES and target != own:
                found.add(target)
    return found


def test_every_module_has_a_floor() -> None:
    homeless = [m for m in MODULES if all(room_of(m) not in rooms for rooms in FLOORS.values())]
    assert homeless == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_import_runs_up_or_across(module: str) -> None:
    here = room_of(module)
    for target in arrows(MODULES[module]):
        there = room_of(target)
        if there == here or floor_of(there) < floor_of(here):
            continue
        training_reads_engine = here in ("pipelines.training", "pipelines.evaluation") and not is_step(target)
        allowed = (here, there) in LEVEL or (training_reads_engine and floor_of(there) == 3)
        assert allowed, f"{module} imports {target}"


def is_step(module: str) -> bool:
    """A module that dvc.yaml runs as a stage."""
    return module.removeprefix("pipelines.") in (ROOT / "dvc.yaml").read_text(encoding="utf-8")


def test_no_import_runs_in_a_circle() -> None:
    graph = nx.DiGraph((m, t) for m, p in MODULES.items() for t in arrows(p, typing=False))
    packages = {m for m, p in MODULES.items() if p.name == "__init__.py"}
    graph.remove_nodes_from(packages & set(graph))
    assert list(nx.simple_cycles(graph)) == []


@pytest.mark.parametrize(("library", "home"), sorted(ONE_HOME.items()))
def test_a_platform_library_has_one_home(library: str, home: str) -> None:
    users = {
        p.relative_to(ROOT).as_posix()
        for p in sources()
        if any(n.split(".")[0] == library for n in imports(p, ROOT, library))
    }
    assert users
    assert {u for u in users if not u.startswith(home)} == set()


def test_an_import_inside_a_function_and_by_importlib_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    text = (
        "import importlib\ndef f():\n    from pipelines.cli import main\n"
        "    importlib.import_module('pipelines.bench')\n"
    )
    (folder / "step.py").write_text(text)
    assert {"pipelines.cli", "pipelines.bench"} <= set(imports(folder / "step.py", tmp_path))
