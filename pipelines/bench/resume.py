"""What is asked again after a kill, an added row, a changed parser; and how fast the store answers.

Law: the server counts, not the client. `repeated` are the requests beyond the first of each key,
`lost` the rows that the finished run does not hold; the warm rows are laid into the store by its own
door, as a run of that size would have left them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median

import orjson

from pipelines.bench import Figures
from pipelines.bench.measure import Contender, Measured
from pipelines.bench.mock_server import MockServer
from pipelines.bench.rows import MODEL, requests
from pipelines.errors import StageError

ROWS = 2_000
IN_FLIGHT = 128
WARM = 50  # times as many rows are read from the store: 100,000
FILL_GROUP = 1_000
TURNS = 3  # of reading them, the median
POLL_S = 0.005


def run(rows: int = ROWS, in_flight: int = IN_FLIGHT) -> Figures:
    """Figures of `headrace bench resume`: counts of requests, rows/s and MB of the warm read."""
    with tempfile.TemporaryDirectory() as name, MockServer(log=Path(name) / "requests.jsonl") as server:
        scene = _Scene(Path(name), server, in_flight)
        scene.killed_at_half(rows)
        whole = scene.run(rows)
        repeated = server.stats()["requests"] - server.stats()["questions"]
        _, added = scene.counted(rows + 1)
        _, edited = scene.counted(rows + 1, "upper")
        _fill(scene.store, rows * WARM)
        warm = [scene.counted(rows * WARM) for _ in range(TURNS)]
    if wrong := [m.said["rows"] for m, _ in warm if m.said["rows"] != rows * WARM]:
        raise StageError(f"the store gave {wrong[0]} of {rows * WARM} rows")
    return {
        "repeated": repeated,
        "in_flight": in_flight,
        "lost": rows - whole.said["rows"],
        "added_row_requests": added,
        "parser_edit_requests": edited,
        "warm_requests": sum(asked for _, asked in warm),
        "warm_rows_per_s": round(rows * WARM / median(m.seconds for m, _ in warm), 1),
        "warm_peak_mb": round(max(m.peak_mb for m, _ in warm), 1),
    }


def laws(figures: Figures) -> dict[str, bool]:
    f = figures
    return {
        "nothing is lost": f["lost"] == 0,
        "at most what was in flight is asked again": f["repeated"] <= f["in_flight"],
        "one row more is one request more": f["added_row_requests"] == 1,
        "another parser asks nothing": f["parser_edit_requests"] == 0,
        "what is stored is not asked": f["warm_requests"] == 0,
        "at least 30,000 rows/s from the store": f["warm_rows_per_s"] >= 30_000,
        "under 500 MB": f["warm_peak_mb"] < 500,
    }


class _Scene:
    """One store, one output and one server, and runs of one stage over them."""

    def __init__(self, folder: Path, server: MockServer, in_flight: int) -> None:
        self.store, self._out = folder / "responses.sqlite", folder / "rows.parquet"
        self._server, self._in_flight = server, in_flight

    def run(self, rows: int, parser: str = "plain") -> Measured:
        return self._start(rows, parser).measure()

    def counted(self, rows: int, parser: str = "plain") -> tuple[Measured, int]:
        """A run, and how many requests it made."""
        before = self._server.stats()["requests"]
        measured = self.run(rows, parser)
        return measured, self._server.stats()["requests"] - before

    def killed_at_half(self, rows: int) -> None:
        child = self._start(rows, "plain")
        child.go()
        while self._server.stats()["answers"] < rows // 2 and child.process.poll() is None:
            time.sleep(POLL_S)
        if child.process.poll() is not None:
            raise StageError("the run to be killed ended before")
        child.kill()

    def _start(self, rows: int, parser: str) -> Contender:
        arguments = [self._server.url, str(self.store), str(self._out), str(rows), str(self._in_flight)]
        return Contender("pipelines.bench.rows", *arguments, parser)


def _fill(path: Path, rows: int) -> None:
    """Lay the answers to `rows` questions into the store, where it has none yet."""
    from pipelines.llm.answer import Usage
    from pipelines.llm.store import Kept, Record, Store

    def records() -> Iterator[Record]:
        from pipelines.llm.request import named_request

        for request in requests(rows):
            named = named_request(request, MODEL, f"name:{MODEL}")
            text = orjson.dumps({"answer": named.key[:12]}).decode()
            message = {"role": "assistant", "content": text}
            body = {"id": f"mock-{named.key[:24]}", "model": MODEL, "choices": [{"message": message}]}
            yield Record(
                key=named.key,
                kind=request.kind,
                model=MODEL,
                identity=named.identity,
                request=named.canonical,
                kept=Kept(text, "stop", Usage(40, 12)),
                body=orjson.dumps(body),
                row=request.row,
                purpose=request.purpose,
            )

    source = records()
    with Store(path) as store:
        while group := list(islice(source, FILL_GROUP)):
            store.put(group)
