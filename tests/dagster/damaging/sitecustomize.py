"""Put on PYTHONPATH by a test: damages what the stage $DVC_STAGE made, as $HEADRACE_TEST_DAMAGE says."""

import os
import sys
from pathlib import Path

if os.environ.get("HEADRACE_TEST_DAMAGE") and os.environ.get("DVC_STAGE"):
    sys.path.insert(0, str(Path.cwd()))  # as `python -m pipelines` does, only later
    from damages import damage_the_stage

    damage_the_stage(os.environ["DVC_STAGE"], os.environ["HEADRACE_TEST_DAMAGE"])
