"""`headrace bench NAME`: measures, and says which laws the figures prove."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

from pipelines.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    from pipelines.bench import BENCHES

    listed = "; ".join(f"{name}: {text}" for name, text in BENCHES.items())
    parser.add_argument("name", metavar="NAME", help=listed.replace("%", "%%"))
    parser.add_argument("--rows", type=int, help="another size (ratios want the whole)")
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON")


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines.bench import BENCHES
    from pipelines.errors import nearest

    if args.name not in BENCHES:
        raise ConfigError(f"there is no bench {args.name!r}", cure=nearest(args.name, BENCHES))
    if args.rows is not None and args.rows < 4:
        raise ConfigError(
            f"--rows must be at least 4, is {args.rows}", cure="leave it out for the whole size"
        )
    bench = importlib.import_module(f"pipelines.bench.{args.name}")
    figures = bench.run(bench.ROWS if args.rows is None else args.rows)
    if args.json:
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        print(f"{name:22} {value:>12,}")
    for sentence, holds in bench.laws(figures).items():
        print(f"{'holds' if holds else 'FAILS':22} {sentence}")
    return 0
