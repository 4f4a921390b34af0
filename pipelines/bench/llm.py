"""What a new row costs: keyed, asked, stored, validated and written, against the floor and the usual.

Law: all contenders ask the same server the same questions with as many in flight, each in a process
of its own; headrace and the floor take turns, and the median turn counts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from pipelines.bench import Figures
from pipelines.bench.measure import Contender, Measured
from pipelines.bench.mock_server import MockServer
from pipelines.errors import StageError

ROWS = 2_000
IN_FLIGHT = 128
TURNS = 9  # of seconds each: on a shared machine the CPU of one varies by a fifth
NAIVE_SHARE = 4  # the SDK gets a quarter of the rows: its rate does not depend on them


def run(rows: int = ROWS) -> Figures:
    """Figures of `headrace bench llm`; rates in rows/s, CPU in seconds for 1,000 rows."""
    ours: list[Measured] = []
    floor: list[Measured] = []
    with tempfile.TemporaryDirectory() as folder, MockServer(log=Path(folder) / "requests.jsonl") as server:
        for turn in range(TURNS):
            floor.append(_asked("floor", server, rows))
            paths = [str(Path(folder) / f"{turn}.{kind}") for kind in ("sqlite", "parquet")]
            child = Contender("pipelines.bench.rows", server.url, *paths, str(rows), str(IN_FLIGHT), "plain")
            ours.append(_whole(child.measure(), rows))
        few = max(1, rows // NAIVE_SHARE)
        naive = _asked("naive", server, few)
    return {
        "rows_per_s": round(rows / median(m.seconds for m in ours), 1),
        "cpu_s_per_1000": round(median(m.cpu_s for m in ours) * 1000 / rows, 3),
        "floor_rows_per_s": round(rows / median(m.seconds for m in floor), 1),
        "floor_cpu_s_per_1000": round(median(m.cpu_s for m in floor) * 1000 / rows, 3),
        "naive_rows_per_s": round(few / naive.seconds, 1),
        "peak_mb": round(max(m.peak_mb for m in ours), 1),
    }


def laws(figures: Figures) -> dict[str, bool]:
    f = figures
    return {
        "at least 0.6 of the floor's rows/s": f["rows_per_s"] >= 0.6 * f["floor_rows_per_s"],
        "at most 2.5 times the floor's CPU": f["cpu_s_per_1000"] <= 2.5 * f["floor_cpu_s_per_1000"],
        "the floor is at least 4 times the SDK's": f["floor_rows_per_s"] >= 4 * f["naive_rows_per_s"],
    }


def _asked(name: str, server: MockServer, rows: int) -> Measured:
    child = Contender("pipelines.bench.contenders", name, server.url, str(rows), str(IN_FLIGHT))
    return _whole(child.measure(), rows)


def _whole(measured: Measured, rows: int) -> Measured:
    if measured.said["rows"] != rows:
        raise StageError(f"a contender answered {measured.said['rows']} of {rows} rows")
    return measured
