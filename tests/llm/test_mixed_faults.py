"""Ten thousand rows against an endpoint that does everything wrong: each row has its own type."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psutil
import pytest
from questions import question, settings
from scripted_server import NAMED

from pipelines.llm.answer import TRANSIENT, Failure
from pipelines.llm.client import open_client
from pipelines.llm.store import KEPT_FAILURES

ROWS, WARM = 10_000, 3_000
SHARES = {
    "400": 0.03,
    "429": 0.10,
    "500": 0.05,
    "503": 0.04,
    "hang": 0.008,
    "drop": 0.03,
    "cut": 0.03,
    "html": 0.04,
    "garbage": 0.04,
    "length": 0.02,
    "filter": 0.02,
    "empty": 0.02,
    "refusal": 0.02,
}
BECOMES = {  # the fault of a row's last attempt, and what the row is then
    None: None,
    "400": Failure.BAD_REQUEST,
    "429": Failure.OVERLOADED,
    "500": Failure.SERVER,
    "503": Failure.OVERLOADED,
    "hang": Failure.TIMEOUT,
    "drop": Failure.NETWORK,
    "cut": Failure.BROKEN_BODY,
    "html": Failure.HTML,
    "garbage": Failure.BROKEN_BODY,
    "length": Failure.LENGTH,
    "filter": Failure.FILTERED,
    "empty": Failure.EMPTY,
    "refusal": Failure.REFUSED,
}
KEPT_MB = 40  # that the client may grow by, over the last 7,000 rows


def _name(fault: dict | None) -> str | None:
    """The script's name of a fault."""
    return next((name for name, told in NAMED.items() if told == fault), None)


@pytest.mark.slow
def test_every_row_is_typed_by_its_last_attempt_the_counts_add_up_and_memory_does_not_grow(
    serve, tmp_path: Path
) -> None:
    server, process = serve({"shares": SHARES, "seed": 11}), psutil.Process()
    changes = {
        "concurrency": 64,
        "retries": 2,
        "first_byte_timeout_s": 5.0,
        "timeout_s": 30.0,
        "stream": True,
    }
    found: dict[str, Failure | None] = {}
    warm = 0
    with open_client(settings(server.url, **changes), tmp_path / "s") as client:
        for answer in client.answers(question(n, kind="chat") for n in range(ROWS)):
            assert answer.id not in found
            found[answer.id] = answer.failure
            assert bool(answer.text) is (answer.failure in (None, Failure.LENGTH))
            if len(found) == WARM:
                warm = process.memory_info().rss
        grown_mb = (process.memory_info().rss - warm) / 2**20
        spent, stored = client.spent, client.store.count()
    requests = server.requests()
    last = {r["key"]: r["fault"] for r in requests}
    assert found == {key: BECOMES[_name(fault)] for key, fault in last.items()}
    assert len(found) == ROWS and set(found.values()) == set(BECOMES.values())
    counts = Counter(found.values())
    assert counts == Counter(spent.failures) + Counter({None: counts[None]})
    assert (spent.asked, spent.attempts) == (ROWS, len(requests))
    assert stored == sum(counts[failure] for failure in (None, *KEPT_FAILURES))
    assert sum(counts[failure] for failure in TRANSIENT) < 0.05 * ROWS
    assert grown_mb < KEPT_MB
