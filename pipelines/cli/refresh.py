"""`headrace refresh`: the one act that asks the world; it adds a dated file of observations."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

from pipelines.cli.params import check_params
from pipelines.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as-of", metavar="DATE", help="the day to act for, YYYY-MM-DD (today)")


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines import graph
    from pipelines.evergreen.ask import refresh

    check_params(root)
    day = _day(args.as_of)
    with graph.writer(root, "headrace refresh", lambda text: print(text, file=sys.stderr)):
        print(refresh(root, day))
    return 0


def _day(text: str | None) -> date:
    try:
        return date.today() if text is None else date.fromisoformat(text)
    except ValueError as e:
        raise ConfigError(f"{text!r} is not a date", where="--as-of", cure="write it as YYYY-MM-DD") from e
