"""`headrace trace ROW_ID`: a row's tree down to raw line, prompt, answer and parameters."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

from pipelines.cli.params import prices_of
from pipelines.lineage import Tracer, lines
from pipelines.step import ANSWERS, store_path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "row_id", metavar="ROW_ID", help="of any row or reject; its first six digits or more will do"
    )


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines import graph

    node = Tracer(root, store_path(root), root / ANSWERS, prices_of(root)).trace(args.row_id)
    versions = {
        name.replace(".", "/", 1).replace("@", "/"): _version(e) for name, e in graph.lock(root).items()
    }
    for line in lines(node, versions):
        print(line)
    return 0


def _version(entry: dict[str, Any]) -> str:
    """Which code made a stage's rows, and which rows: hashes from dvc.lock, shortened."""
    code = hashlib.md5(usedforsecurity=False)
    for dep in entry.get("deps", []):
        if dep["path"].startswith("pipelines/"):
            code.update(dep.get("md5", "").encode())
    rows = next((o["md5"] for o in entry.get("outs", []) if o["path"].endswith("rows.parquet")), "")
    return f"code {code.hexdigest()[:8]}" + (f", data {rows[:8]}" if rows else "")
