"""`headrace run`: the graph, or the named stages and what they need, up to date."""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from pipelines.cli.params import check_params
from pipelines.cli.status import made, table
from pipelines.environment import variables


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="e.g. evergreen.curate, trit.translate@fr")
    parser.add_argument("--force", action="store_true", help="run them even if nothing changed")
    parser.add_argument("--single", action="store_true", help="the named stages alone, not what they need")


def main(args: argparse.Namespace, root: Path) -> int:
    """Runs, then prints the closing table. A stage that fails ends it with status 1."""
    from pipelines import graph
    from pipelines.tracking_figures import tell_figures

    check_params(root)
    began = time.monotonic()
    with variables(HEADRACE_RUN_ID=os.environ.get("HEADRACE_RUN_ID") or uuid.uuid4().hex):
        ran = graph.run(root, args.stages, who="headrace run", single=args.single, force=args.force, say=_say)
        tell_figures(root, _say)  # those of a run that failed wait for one that does not
    print(table(made(root, ran.looked_at)))
    seconds = time.monotonic() - began
    if ran.made:
        report = "; the report: reports/index.html" if "evaluation.report" in ran.made else ""
        print(f"{_count(ran.made)} made in {seconds:.0f} s{report}")
    else:
        print(f"nothing to be done: {_count(ran.looked_at)} up to date ({seconds:.1f} s)")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} stage{'' if len(names) == 1 else 's'}"
