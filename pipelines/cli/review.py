"""`headrace review`: the cases that wait for a person, laid out to be decided, and decided."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.evergreen.reviewing.open_cases import Desk

SHOWN = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--collect",
        action="store_true",
        help="add the open cases to data/review/evergreen/cases.jsonl, as lines to fill in",
    )
    parser.add_argument(
        "--decide",
        nargs=2,
        metavar=("CASE", "DECISION"),
        help="add a decision: evergreen, mutable (or never, slow, fast) or drop",
    )
    parser.add_argument("--who", help="who decides")
    parser.add_argument("--when", metavar="DATE", help="the day of the decision, YYYY-MM-DD (today)")
    parser.add_argument("--change-rate", metavar="RATE", help="slow or fast, of a mutable question")
    parser.add_argument("--answer", help="the right answer")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines import graph
    from pipelines.cli.params import check_params
    from pipelines.evergreen.reviewing import open_cases

    if args.decide is None and (args.who or args.when or args.change_rate or args.answer):
        raise ConfigError("--who, --when, --change-rate and --answer go with --decide")
    check_params(root)
    if not args.collect and args.decide is None:
        _show(open_cases.desk(root), args.json)
        return 0
    with graph.writer(root, "headrace review", lambda text: print(text, file=sys.stderr)):
        if args.decide is not None:
            case, decision = args.decide
            said = {"decision": decision, "change_rate": args.change_rate, "answer": args.answer}
            when = args.when or open_cases.today()
            told = open_cases.decide(root, case, {**said, "who": args.who, "when": when})
            print(
                f"{told.verdict} ({told.change_rate}) by {told.who} on {told.when}: `headrace run` applies it"
            )
        if args.collect:
            added = open_cases.collect(root)
            print(f"added {len(added)} lines to {open_cases.FILE}: fill in decision, who and when")
    return 0


def _show(found: Desk, as_json: bool) -> None:
    bad = [f"{record.place(told.column)}: {told.reason} {told.detail}".strip() for record, told in found.bad]
    if as_json:
        print(json.dumps({"open": list(found.cases), "decided": found.decided, "refused": bad}))
        return
    for (stage, kind), count in sorted(Counter((c["stage"], c["kind"]) for c in found.cases).items()):
        print(f"{count:>6,}  {stage}  {kind}")
    applied = "; `headrace run` applies them" if found.decided else ""
    print(f"{len(found.cases):>6,}  open, {found.decided} decided{applied}")
    for one in found.cases[:SHOWN]:
        label = one.get("label") or "no label"
        known_as = one.get("known_as") or one["question"]
        also = "" if known_as == one["question"] else f" ({known_as})"
        asked = f"[{one['language']}] {one['question']}{also}"
        print(f"{one['case'][:12]}  {asked}  ({label}): {one.get('why', '')}")
    if len(found.cases) > SHOWN:
        print(
            f"and {len(found.cases) - SHOWN} more: --json lists all, --collect lays them out to be filled in"
        )
    for line in bad:
        print(f"refused: {line}")
