"""`headrace`: one verb, one module. The drivers of the graph for a shell.

Law: what goes wrong through input, configuration or the machine is one line on
standard error and a status other than zero.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from pipelines.errors import ConfigError, HeadraceError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb, or a stage (`python -m pipelines trit.translate fr`); returns the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if args and "." in args[0] and not args[0].startswith("-"):
            return _stage(args)
        from pipelines.cli.verbs import run_verb

        return run_verb(args)
    except HeadraceError as e:
        print(f"headrace: {e}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] == "pipelines":
            raise
        cure = "make setup, then . .venv/bin/activate"
        print(
            f"headrace: this Python lacks the package {e.name!r}: {sys.executable} ({cure})", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            print("headrace: interrupted; what was answered is stored", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1


def _stage(args: Sequence[str]) -> int:
    """Runs a stage. Its failure is the driver's to tell, when one of ours started it."""
    from pipelines.cli.stage import run_stage
    from pipelines.graph.reason import tell

    if len(args) > 2:
        raise ConfigError(f"{args[2]!r} is one word too many", cure="a stage and one of its entries")
    try:
        return run_stage(args[0], args[1] if len(args) > 1 else None)
    except HeadraceError as e:
        if not tell(str(e)):
            raise
        return 1
