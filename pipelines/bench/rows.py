"""The work that the benches measure: N questions, their answers validated and written to Parquet.

Run: `python -m pipelines.bench.rows URL STORE OUT ROWS IN_FLIGHT PARSER`, PARSER `plain` or `upper`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from pipelines.llm.answer import Answer
from pipelines.llm.client import open_client
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings

MODEL = "mock"
INSTRUCTION = "You answer questions about numbers. Answer in JSON."
SAMPLING = Sampling(64, temperature=0.7, top_p=0.95)


def question(number: int) -> str:
    """The n-th of many different questions, a few dozen tokens long."""
    return (
        f"A mill has {number} wheels. Each wheel turns {number % 97 + 3} stones, and each stone needs "
        f"{number % 13 + 2} litres of water a second. How much water does the mill need a second?"
    )


def requests(rows: int) -> Iterator[Request]:
    for number in range(rows):
        messages = (("system", INSTRUCTION), ("user", question(number)))
        yield Request(
            "chat", MODEL, SAMPLING, messages=messages, seed=number, row=f"row{number}", purpose="bench"
        )


def parsed(answer: Answer, parser: str) -> str | None:
    """The value that the model's JSON holds, or None: 12 hex digits."""
    if not answer.ok:
        return None
    try:
        value = orjson.loads(answer.text)["answer"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(value, str) or len(value) != 12:
        return None
    return value.upper() if parser == "upper" else value


def work(url: str, store: Path, out: Path, rows: int, in_flight: int, parser: str) -> Mapping[str, Any]:
    """Ask for all rows and write those that are valid, by row. Returns how many."""
    import polars as pl

    from pipelines.data.tables import write_parquet

    settings = Settings(backend="openai", model=MODEL, base_url=url, concurrency=in_flight)
    names: list[str] = []
    ids: list[str] = []
    values: list[str] = []
    with open_client(settings, store) as client:
        for answer in client.answers(requests(rows)):
            value = parsed(answer, parser)
            if value is not None:
                names.append(answer.request.row)
                ids.append(answer.id)
                values.append(value)
        spent = client.spent
    frame = pl.DataFrame({"row": names, "response": ids, "value": values}).sort("row")
    write_parquet(frame, out)
    return {"rows": frame.height, "asked": spent.asked, "stored": spent.stored}


def main(url: str, store: str, out: str, rows: str, in_flight: str, parser: str) -> None:
    import polars  # noqa: F401 - what a run imports is not what is measured

    import pipelines.data.tables
    import pipelines.llm.courier
    import pipelines.llm.endpoint  # noqa: F401
    from pipelines.bench.measure import obey

    obey(lambda: work(url, Path(store), Path(out), int(rows), int(in_flight), parser))


if __name__ == "__main__":
    main(*sys.argv[1:])
