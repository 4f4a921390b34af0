"""`headrace status`: what each stage read, accepted and refused, and whether it is fresh."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipelines.cli.params import check_params
from pipelines.data.outcomes import OTHER
from pipelines.step import read_outcomes

LEGEND = "accepted + rejected + other = items, the work that a stage planned from the rows that it read"


@dataclass(frozen=True)
class Line:
    """One stage. Counts are None where it makes no rows or was never run; `made`: something of it is there.

    accepted + rejected + other = items, the work items that it planned; with
    fan-out they are more than the rows that it read.
    """

    stage: str
    rows_in: int | None
    items: int | None
    accepted: int | None
    rejected: int | None
    other: int | None
    rows_out: int | None
    fresh: bool
    made: bool


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def main(args: argparse.Namespace, root: Path) -> int:
    check_params(root)
    found = lines(root)
    if args.json:
        print(json.dumps({"stages": [asdict(x) for x in found]}))
    else:
        print(table(found))
    return 0


def lines(root: Path) -> list[Line]:
    """All stages in the order of the graph."""
    from pipelines import graph

    stages, changed = graph.state(root)
    return [
        _line(root, s.name, s.folder, s.name not in changed, any((root / out).exists() for out in s.outs))
        for s in stages
    ]


def made(root: Path, names: Sequence[str]) -> list[Line]:
    """The named stages right after a run of them: fresh, without a further look at the graph."""
    return [_line(root, name, name.replace(".", "/").replace("@", "/"), True, True) for name in names]


def _line(root: Path, name: str, folder: str, fresh: bool, made: bool) -> Line:
    seen = read_outcomes(root, folder)
    if seen is None or not {"rows_in", "items", "accepted", "rejected", "rows_out", *OTHER} <= seen.keys():
        return Line(name, None, None, None, None, None, None, fresh, made)
    other = sum(seen[o] for o in OTHER)
    return Line(
        name,
        seen["rows_in"],
        seen["items"],
        seen["accepted"],
        seen["rejected"],
        other,
        seen["rows_out"],
        fresh,
        made,
    )


def table(found: list[Line]) -> str:
    """The closing table, aligned, a stage a line, and a line that says how to read it."""
    head = ("stage", "rows in", "items", "accepted", "rejected", "other", "rows out", "")
    body = [
        (x.stage, *(_cell(v) for v in (x.rows_in, x.items, x.accepted, x.rejected, x.other, x.rows_out)),
         "fresh" if x.fresh else "stale" if x.made else "not made")
        for x in found
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
    return (
        "\n".join(
            "  ".join(
                c.ljust(w) if i in (0, len(head) - 1) else c.rjust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (head, *body)
        )
        + f"\n{LEGEND}"
    )


def _cell(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
