"""What a storm costs: 30 % of answers a 429, 10 % a 500, 5 % none at all.

Law: a refusal at random must not slow what is sent, and nothing that was answered is lost. The ideal
is the same client on a server without faults, with as many rows as the storm's server sent answers
of any kind: it does as much work, and nobody throttles it.

The child: `python -m pipelines.bench.storm URL STORE ROWS IN_FLIGHT`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from pipelines.bench import Figures
from pipelines.bench.measure import Contender, Measured
from pipelines.bench.mock_server import MockServer
from pipelines.bench.rows import MODEL, parsed, requests

ROWS = 10_000
IN_FLIGHT = 256  # the 5 % that hang for a second hold half of the places
TURNS = 3  # of storm and ideal, the median of each
FIRST_BYTE_S = 1.0
RETRIES = 20  # of 500s and time-outs: two in nine attempts that are no 429; a row gives up once in 10^13
STORM = {"shares": {"429": 0.3, "500": 0.1, "hang": 0.05}, "seed": 7, "retry_after_s": [0.05, 1.0]}


def run(rows: int = ROWS, in_flight: int = IN_FLIGHT) -> Figures:
    """Figures of `headrace bench storm`: rows done, answers lost, time over that of the ideal."""
    turns = [_turn(rows, in_flight) for _ in range(TURNS)]
    seconds, ideal_s = (median(m.seconds for m in of) for of in zip(*(t[:2] for t in turns), strict=True))
    return {
        "rows": rows,
        "done": min(storm.said["done"] for storm, _, _ in turns),
        "lost": sum(stats["answers"] - storm.said["kept"] for storm, _, stats in turns),
        "time_over_ideal": round(seconds / ideal_s, 3),
        "seconds": round(seconds, 2),
        "ideal_seconds": round(ideal_s, 2),
        "sent": turns[0][2]["requests"],
        "peak_mb": round(max(storm.peak_mb for storm, _, _ in turns), 1),
    }


def _turn(rows: int, in_flight: int) -> tuple[Measured, Measured, dict[str, Any]]:
    """A storm and its ideal, and what the storm's server counted."""
    with tempfile.TemporaryDirectory() as folder:
        with MockServer(STORM, log=Path(folder) / "storm.jsonl") as server:
            storm = _measured(server, Path(folder) / "storm.sqlite", rows, in_flight)
            stats = server.stats()
        sent = stats["requests"] - stats["faults"].get("hang", 0)
        with MockServer(log=Path(folder) / "calm.jsonl") as server:
            return storm, _measured(server, Path(folder) / "calm.sqlite", sent, in_flight), stats


def laws(figures: Figures) -> dict[str, bool]:
    f = figures
    return {
        "all rows are done": f["done"] == f["rows"],
        "no answer is lost": f["lost"] == 0,
        "at most twice the ideal's time": f["time_over_ideal"] <= 2,
    }


def _measured(server: MockServer, store: Path, rows: int, in_flight: int) -> Measured:
    return Contender("pipelines.bench.storm", server.url, str(store), str(rows), str(in_flight)).measure()


def work(url: str, store: Path, rows: int, in_flight: int) -> Mapping[str, Any]:
    """Ask for all rows. Returns how many are done, and how many answers are stored."""
    from pipelines.llm.client import open_client
    from pipelines.llm.settings import Settings

    settings = Settings(
        backend="openai",
        model=MODEL,
        base_url=url,
        concurrency=in_flight,
        first_byte_timeout_s=FIRST_BYTE_S,
        retries=RETRIES,
    )
    with open_client(settings, store) as client:
        done = sum(parsed(answer, "plain") is not None for answer in client.answers(requests(rows)))
        return {"done": done, "kept": client.store.count()}


def main(url: str, store: str, rows: str, in_flight: str) -> None:
    import pipelines.llm.courier
    import pipelines.llm.endpoint  # noqa: F401 - what a run imports is not what is measured
    from pipelines.bench.measure import obey

    obey(lambda: work(url, Path(store), int(rows), int(in_flight)))


if __name__ == "__main__":
    main(*sys.argv[1:])
