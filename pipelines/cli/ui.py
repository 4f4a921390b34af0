"""`headrace ui`: Dagster and MLflow on loopback, until Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=3000, help="Dagster's port (3000)")
    parser.add_argument("--mlflow-port", type=int, default=5000, help="MLflow's port (5000)")


def main(args: argparse.Namespace, root: Path) -> int:
    from dagster_project.serve import serve

    return serve(root, args.port, args.mlflow_port)
