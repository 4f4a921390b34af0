"""`headrace bench NAME`: measurements as ratios within one run, one JSON line each.

A bench is a module of this folder: `ROWS` is its size, `run(rows)` measures and gives the figures of
its JSON line in order, `laws(figures)` says of each sentence that they should prove whether it holds.
One that reads public data names a file of it as `DATA`, and is run(rows, data, store): the folder of the
data sets (`--data`) and the response store to use (`--store`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, Any]  # numbers, in mappings where there are several of a kind

BENCHES = {
    "llm": "2,000 new rows at 128 in flight, against bare aiohttp and against the OpenAI SDK",
    "resume": "SIGKILL at half, one row added, the parser changed, 100,000 rows from the store",
    "storm": "10,000 rows while 30 % of answers are a 429, 10 % a 500 and 5 % none, against calm",
    "duplicates": "near duplicates among 100,000 short texts, and of 20,000 against comparing all pairs",
    "shares": "how many questions of NQ-open, SQuAD, HotpotQA and AdaRAGUE are expected to change",
    "evergreen": "the evergreen classifier, trained without leaks, on all test rows of EverGreenQA",
}
