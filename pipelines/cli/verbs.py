"""The verbs of `headrace`: their names, and where each lives. A verb is imported when it is used."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from pipelines.errors import ConfigError, nearest

VERBS = {
    "run": "bring the graph, or the named stages and what they need, up to date",
    "preview": "what a run would ask of models, and what it would cost and take; nothing is asked",
    "status": "rows in, accepted, rejected and freshness of every stage",
    "trace": "where a row comes from, down to raw line, prompt and model answer",
    "refresh": "ask for new answers to the questions that are due, as a dated file of observations",
    "review": "the questions that wait for a person's decision; lay them out, or decide",
    "init": "make a workspace: this graph with your own inputs",
    "graph": "show the graph; --write declares in dvc.yaml the code that each stage reaches",
    "store": "what the response store holds; verify, export, import and prune it",
    "batches": "the batches that are out; wait for them, or cancel them",
    "models": "list the models known, or fetch one",
    "bench": "measure what a model call costs, a restart repeats, the store gives",
    "ui": "start Dagster and MLflow on loopback",
}


class _Parser(argparse.ArgumentParser):
    """Argument errors as ours: one line with the cure."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError(message, cure=f"see {self.prog} --help")


def run_verb(args: Sequence[str]) -> int:
    """Parses the arguments of one verb and runs it."""
    top = _Parser(
        prog="headrace",
        description="Declared pipelines that make, check and version training data for language models.",
        epilog="`headrace VERB --help` says more. A stage runs alone by `python -m pipelines STAGE`.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    chosen = next((a for a in args if not a.startswith("-")), None)
    for verb, text in VERBS.items():
        sub = commands.add_parser(verb, help=text, description=text)
        if verb == chosen:
            module = importlib.import_module(f"pipelines.cli.{verb}")
            module.arguments(sub)
    if chosen is not None and chosen not in VERBS:
        raise ConfigError(f"unknown command {chosen!r}", cure=nearest(chosen, VERBS))
    parsed = top.parse_args(list(args))
    if parsed.verb is None:
        top.print_help()
        return 0
    return int(module.main(parsed, Path.cwd()))


def _version() -> str:
    from pipelines import __version__

    return f"headrace {__version__}"
