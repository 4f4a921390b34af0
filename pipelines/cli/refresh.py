"""`headrace refresh`: the one act that asks the world; it adds a dated file of observations."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.params import check_params
from pipelines.evergreen.refreshing.day import day_of

if TYPE_CHECKING:
    from pipelines.evergreen.refreshing.report import Report
    from pipelines.evergreen.refreshing.source import Asked

SHOWN = 10  # questions of a --dry-run

WHO = (
    "evergreen.refresh in params.yaml says who is asked (a table of facts, a model, a Python callable) and "
    "how often. Rows that are not due are not asked: a label saves their requests. A call that was broken "
    "off is made good by another for the same day, which asks for the rest alone; after one that is done "
    "another adds nothing."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = WHO
    parser.add_argument("--as-of", metavar="DATE", help="the day to act for, YYYY-MM-DD (today, UTC)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be asked, and ask nothing")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines import graph
    from pipelines.evergreen.refreshing.ask import PartlyAsked, foretell, refresh
    from pipelines.graph.children import terminable

    check_params(root)
    told = "" if args.as_of is None else args.as_of or "''"
    day = day_of(told, datetime.now(UTC), "--as-of", ahead=args.dry_run)
    if args.dry_run:
        print(_foretold(*foretell(root, day), as_json=args.json))
        return 0
    with terminable(), graph.writer(root, "headrace refresh", lambda text: print(text, file=sys.stderr)):
        try:
            report = refresh(root, day)
        except PartlyAsked as partly:
            print(_told(partly.report, as_json=args.json))
            raise
    print(_told(report, as_json=args.json))
    return 0


def _told(report: Report, *, as_json: bool) -> str:
    return json.dumps(report.plain(), ensure_ascii=False) if as_json else str(report)


def _foretold(report: Report, asked: list[Asked], *, as_json: bool) -> str:
    if as_json:
        rows = [{"question_id": a.question_id, "language": a.language, "question": a.question} for a in asked]
        return json.dumps({**report.plain(), "would_ask": rows}, ensure_ascii=False)
    lines = [f"  {a.language}: {a.question}" for a in asked[:SHOWN]]
    if len(asked) > SHOWN:
        lines.append(f"  and {len(asked) - SHOWN} more: --json lists all")
    return "\n".join([report.head(), *lines, "nothing was asked"])
