"""The console script `headrace`, and `python -m pipelines`: the same.

Before any verb is known an interrupt ends the process without a word; a stage may be interrupted while it is
being loaded, and what is told of that is its driver's to tell.
"""

import signal
import sys


def main() -> int:
    """Returns the exit status. See `pipelines.cli.main`."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipelines import cli

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
