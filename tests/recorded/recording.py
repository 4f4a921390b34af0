"""The answers of Qwen2.5-Coder-1.5B that tests replay, and how they are recorded: `make record`.

Run: recording.py [--folder DIR]. The stages that ask are run in a workspace with that model; what
they use is exported beside this file. Answers recorded before are kept: only what a changed prompt,
parameter or input asks anew is asked, and what it made stale is named and left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDING = Path(__file__).with_name("qwen2.5-coder-1.5b.parquet")
MODEL = "qwen2.5-coder-1.5b"
TARGETS = ("trit.feedback", "cbu.score", "evergreen.aliases")
SETS = (  # some 500 answers: less than an hour on one core
    f"llm.model={MODEL}",
    "trit.languages=[fr, pt]",
    "trit.reason.samples=2",
    "cbu.neighbors.problems=4",
    "cbu.rollout.rollouts=2",
    "evergreen.synthesize.languages=[en]",
    "evergreen.synthesize.questions=150",
    "evergreen.synthesize.by_model=0.6",
    "evergreen.synthesize.ask_over=1.3",
    "evergreen.synthesize.per_answer=3",
    "evergreen.synthesize.max_tokens=200",
    "evergreen.translate.sources=[model]",
    "evergreen.translate.limit=18",
    "evergreen.aliases.sources=[model]",
    "evergreen.aliases.limit=32",
    "evergreen.aliases.fewest=2",
)


def lay(folder: Path) -> None:
    """The workspace whose answers are recorded: the demo's inputs, asked of the larger model."""
    sets = [word for each in SETS for word in ("--set", each)]
    headrace(folder.parent, "init", folder.name, *sets)


def headrace(folder: Path, *words: str, stderr: int | None = None, **more: str) -> None:
    """`headrace ...` in a process of its own, with the workspace's own code. Raises CalledProcessError."""
    told = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_LLM", "HEADRACE_STORE"))}
    command = [sys.executable, "-m", "pipelines", *words]
    subprocess.run(command, cwd=folder, env={**told, **more}, check=True, stderr=stderr, text=True)


def stale(recorded: Mapping[str, tuple[str, str]], reached: set[str]) -> dict[str, list[str]]:
    """Recorded answers (key -> purpose, row) that no row reaches any more: rows by purpose."""
    found: dict[str, list[str]] = defaultdict(list)
    for key, (purpose, row) in recorded.items():
        if key not in reached:
            found[purpose].append(row)
    return {purpose: sorted(rows) for purpose, rows in sorted(found.items())}


def recorded() -> dict[str, tuple[str, str]]:
    """What is recorded: key of each answer -> purpose and row."""
    import polars as pl

    if not RECORDING.is_file():
        return {}
    table = pl.read_parquet(RECORDING, columns=["key", "kind", "purpose", "row"])
    rows = table.filter(pl.col("kind") != "embedding").select("key", "purpose", "row").iter_rows()
    return {key: (purpose, row) for key, purpose, row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the answers that tests replay.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".headrace" / "recording")
    folder = parser.parse_args().folder.resolve()
    before = recorded()
    if not folder.exists():  # else a recording that was cut off goes on
        folder.parent.mkdir(parents=True, exist_ok=True)
        lay(folder)
        if before:
            headrace(folder, "store", "import", str(RECORDING))
    headrace(folder, "run", *TARGETS)
    headrace(folder, "store", "export", "--run", str(RECORDING))
    now = recorded()
    print(f"{RECORDING.name}: {len(now)} answers, {RECORDING.stat().st_size:,} bytes")
    print(f"{len(now.keys() & before.keys())} as before, {len(now.keys() - before.keys())} new")
    for purpose, rows in stale(before, set(now)).items():
        print(
            f"stale and left out, {purpose}: {len(rows)} ({', '.join(rows[:10])}{', ...' * (len(rows) > 10)})"
        )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
