"""`headrace bench NAME`: measures, and says which laws the figures prove.

Law: it ends well only if every law of the bench holds; the figures are printed in either case.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from pipelines.data.told import flat
from pipelines.errors import ConfigError, InputError
from pipelines.step import store_path


def arguments(parser: argparse.ArgumentParser) -> None:
    from pipelines.bench import BENCHES

    listed = "; ".join(f"{name}: {text}" for name, text in BENCHES.items())
    parser.add_argument("name", metavar="NAME", help=listed.replace("%", "%%"))
    parser.add_argument("--rows", type=int, help="another size (ratios want the whole)")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the public data sets, for those that read them"
    )
    parser.add_argument("--store", metavar="FILE", help="response store to use (default: this workspace's)")
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
    rows = bench.ROWS if args.rows is None else args.rows
    if hasattr(bench, "DATA"):
        store = Path(args.store) if args.store else store_path(root)
        needed = getattr(bench, "DATA_NEEDED", True) or args.data is not None
        data = _data(args.data, bench.DATA, args.name) if needed else None
        figures = bench.run(rows, data, store)
    else:
        figures = bench.run(rows)
    laws: dict[str, bool] = bench.laws(figures)
    broken = [sentence for sentence, holds in laws.items() if not holds]
    if args.json:
        print(json.dumps(figures), flush=True)
    else:
        for name, value in flat(figures).items():
            print(f"{name:22} {value:>12,}" if isinstance(value, int | float) else f"{name:22} {value}")
        for sentence, holds in laws.items():
            print(f"{'holds' if holds else 'FAILS':22} {sentence}")
    if broken:
        of_other_size = "" if rows == bench.ROWS else f" (of {rows} rows; its laws are of {bench.ROWS})"
        print(f"headrace: bench {args.name} fails: {'; '.join(broken)}{of_other_size}", file=sys.stderr)
    return int(bool(broken))


def _data(told: str | None, needed: str, name: str) -> Path:
    """The folder of public data sets, with the file `needed` below it. Raises ConfigError, InputError."""
    if told is None:
        raise ConfigError(f"bench {name} reads public files", cure="add --data DIR")
    if not (Path(told) / needed).is_file():
        raise InputError(f"no {needed} below this folder", where=told, cure="name the folder that holds it")
    return Path(told)
