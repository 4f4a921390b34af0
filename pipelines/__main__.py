"""`python -m pipelines`: the same as the console script `headrace`."""

import sys

from pipelines.cli import main

sys.exit(main())
