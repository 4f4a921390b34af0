"""A small workspace whose stages ask a scripted endpoint, and its way to another machine by DVC."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipelines.cli import main

ENGINES = ("trit", "cbu")
SETS = (
    "trit.languages=[fr]",
    "trit.ingest.limit=5",
    "cbu.neighbors.problems=2",
    "cbu.neighbors.consider=2",
    "cbu.neighbors.backend=openai",
    "cbu.neighbors.model=embedder",
    "cbu.rollout.rollouts=2",
)


@dataclass
class Answering:
    """The workspace in `folder`. `url` is the endpoint; empty for a machine without one."""

    folder: Path
    url: str = ""

    def run(self, *arguments: str, expect: int = 0, **more: str) -> str:
        """`headrace ...` in a process of its own; what it said, standard output first."""
        return self._started([sys.executable, "-m", "pipelines", *arguments], expect, more)

    def dvc(self, *arguments: str) -> str:
        """A bare `dvc ...`, also for the runs that ask: it tells no tracker, which takes long at first."""
        return self._started([str(Path(sys.executable).parent / "dvc"), *arguments], 0, {})

    def _started(self, command: list[str], expect: int, more: dict[str, str]) -> str:
        told = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        asked = {"HEADRACE_LLM_BACKEND": "openai", "HEADRACE_LLM_BASE_URL": self.url} if self.url else {}
        path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        env = {**told, **path, **asked, **more}
        ended = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        said = ended.stdout + ended.stderr
        assert ended.returncode == expect, said[-3000:]
        assert "Traceback" not in said, said
        return said

    def outs(self) -> dict[str, bytes]:
        """Every out of the graph, by path."""
        made = [p for e in (*ENGINES, "evaluation", "answers") for p in (self.folder / "data" / e).rglob("*")]
        return {
            p.relative_to(self.folder).as_posix(): p.read_bytes()
            for p in made
            if p.is_file() and p.name != ".gitignore"
        }


def lay(folder: Path, url: str) -> Answering:
    """A workspace of TRIT (one language), CBU and the answers that they reach; nothing is run."""
    before = Path.cwd()
    os.chdir(folder.parent)
    try:
        assert main(["init", folder.name, *(a for s in SETS for a in ("--set", s))]) == 0
    finally:
        os.chdir(before)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    kept = {k: params[k] for k in ("profile", "seed", "llm", *ENGINES)}
    kept["evaluation"] = {"answers": params["evaluation"]["answers"]}
    (folder / "params.yaml").write_text(yaml.safe_dump(kept, sort_keys=False))
    graph = yaml.safe_load((folder / "dvc.yaml").read_text())
    stages = {n: _own(e) for n, e in graph["stages"].items() if n.split(".")[0] in ENGINES}
    stages["evaluation.answers"] = _own(graph["stages"]["evaluation.answers"])
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    return Answering(folder, url)


def _own(entry: dict[str, Any]) -> dict[str, Any]:
    """A stage without its code, which no test here edits, and without what other engines make."""
    data = tuple(f"data/{e}/" for e in (*ENGINES, *(f"raw/{e}" for e in ENGINES)))
    return {**entry, "deps": [d for d in entry["deps"] if f"{d}/".startswith(data)]}


def pulled(workspace: Answering, to: Path) -> Answering:
    """What another machine has after a clone and `dvc pull`: no response store, no endpoint."""
    remote = to.parent / f"{to.name}-remote"
    if not remote.exists():
        workspace.dvc("remote", "add", "-f", "-d", "there", str(remote))
        workspace.dvc("push")
    to.mkdir()
    for name in ("dvc.yaml", "dvc.lock", "params.yaml", ".gitignore", ".dvcignore"):
        shutil.copyfile(workspace.folder / name, to / name)
    shutil.copytree(workspace.folder / "data" / "raw", to / "data" / "raw")
    (to / ".dvc").mkdir()
    shutil.copyfile(workspace.folder / ".dvc" / "config", to / ".dvc" / "config")
    (to / "pipelines").symlink_to((workspace.folder / "pipelines").resolve())
    clone = Answering(to)
    clone.dvc("pull")
    return clone
