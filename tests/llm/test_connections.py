"""A connection that the server has closed, kept alive for too long, costs no attempt; a lost answer does."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from questions import question, settings

from pipelines.errors import EnvironmentFault, StageError
from pipelines.llm import connections, transport
from pipelines.llm.answer import Failure
from pipelines.llm.backends.openai import OpenAI
from pipelines.llm.client import open_client
from pipelines.llm.protocol import Reply
from pipelines.llm.transport import Transport

GOOD = json.dumps({"choices": [{"text": "four", "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}})


class Server(threading.Thread):
    """Answers by a plan, a word a request: "answer", "close" (answers, then closes), "drop" (only closes),
    "end" (as "close", and listens no more)."""

    def __init__(self, *plan: str) -> None:
        super().__init__(daemon=True)
        self.plan, self.requests, self.connections = list(plan), 0, 0
        self.closed = threading.Event()
        self.body, self.encoding = GOOD.encode(), ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while line := file.readline():
                length = 0
                while line.strip():
                    length = (
                        int(line.split(b":")[1]) if line.lower().startswith(b"content-length") else length
                    )
                    line = file.readline()
                file.read(length)
                self.requests += 1
                word = self.plan.pop(0) if self.plan else "answer"
                if word != "drop":
                    head = f"HTTP/1.1 200 OK\r\n{self.encoding}Content-Type: application/json"
                    told = f"\r\nContent-Length: {len(self.body)}\r\n\r\n"
                    connection.sendall(f"{head}{told}".encode() + self.body)
                if word == "end":
                    self.stop()
                if word != "answer":
                    break
        self.closed.set()

    def stop(self) -> None:
        with suppress(OSError):  # it has ended by itself
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    started = Server(*request.param)
    yield started
    started.stop()


def two(server: Server, *, closed: bool) -> list[Reply]:
    """Replies to two requests; between them the server may close, unseen: the loop does not turn."""

    async def ask() -> list[Reply]:
        sender = Transport(OpenAI(server.url), settings(server.url))
        try:
            first = await sender.attempt(server.url, "completion", "m", b"{}", "k")
            if closed:
                assert server.closed.wait(10)
                time.sleep(0.05)
            return [first, await sender.attempt(server.url, "completion", "m", b"{}", "k")]
        finally:
            await sender.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("server", [["close"]], indirect=True)
@pytest.mark.parametrize("seen", [True, False])
def test_what_goes_to_a_connection_that_the_server_has_closed_goes_out_on_a_new_one(
    server: Server, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`seen`: when we come to write; else the server's end and our request cross on the way."""
    if not seen:
        monkeypatch.setattr(connections, "OPEN", 8)  # CLOSE_WAIT: as if the end had not come yet
    assert [r.kept.text for r in two(server, closed=True)] == ["four", "four"]
    assert (server.requests, server.connections) == (2, 2)


@pytest.mark.parametrize("server", [["end"]], indirect=True)
def test_where_no_server_is_left_for_a_new_one_the_request_failed_and_was_not_sent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "OPEN", 8)  # CLOSE_WAIT: as if the end had not come yet
    last = two(server, closed=True)[1]
    assert last.kept.failure is Failure.NETWORK and not last.left


@pytest.mark.parametrize("server", [["answer"]], indirect=True)
def test_a_connection_that_is_kept_alive_is_used_again(server: Server) -> None:
    assert [r.kept.text for r in two(server, closed=False)] == ["four", "four"]
    assert (server.requests, server.connections) == (2, 1)


@pytest.mark.parametrize("server", [["answer", "drop"], ["drop", "drop"]], indirect=True)
def test_what_the_server_has_read_and_not_answered_was_sent_and_may_be_billed(server: Server) -> None:
    last = two(server, closed=False)[1]
    assert last.kept.failure is Failure.NETWORK and last.left
    assert server.requests == 2


@pytest.mark.parametrize("server", [["close"]], indirect=True)
def test_it_is_one_attempt_of_the_question_and_none_is_told_as_lost(server: Server, tmp_path: Path) -> None:
    with open_client(settings(server.url, concurrency=1), tmp_path / "s.sqlite") as client:
        (first,) = client.answers([question(1)])
        assert server.closed.wait(10)
        (second,) = client.answers([question(2)])
        assert first.ok and second.ok
        assert client.spent.attempts == server.requests == 2
        assert json.loads(client.store.full([second.id])[second.id].history)[0]["outcome"] == "ok"


@pytest.mark.parametrize("server", [["answer"]], indirect=True)
def test_a_reply_that_is_small_on_the_way_and_huge_unpacked_is_broken_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 1_000_000)
    server.body, server.encoding = (
        gzip.compress(b" " * 30_000_000 + GOOD.encode()),
        "Content-Encoding: gzip\r\n",
    )
    first = two(server, closed=False)[0]
    assert (first.kept.failure, first.kept.detail) == (
        Failure.BROKEN_BODY,
        "a reply of more than 1000000 bytes",
    )
    server.body = gzip.compress(GOOD.encode())
    assert two(server, closed=False)[0].kept.text == "four"


@pytest.mark.parametrize("server", [["answer"]], indirect=True)
def test_a_client_whose_server_cannot_be_ended_still_gives_back_claims_and_closes_the_store(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client(settings(server.url), tmp_path / "s.sqlite")
    list(client.answers([question(1)]))
    end = client.courier().close

    def failing() -> None:
        end()
        raise EnvironmentFault("the server does not end")

    monkeypatch.setattr(client.courier(), "close", failing)
    with pytest.raises(EnvironmentFault, match="does not end"):
        client.close()
    assert list((tmp_path / "s.claimants").iterdir()) == []
    with pytest.raises(StageError, match="the response store was closed"):
        client.store.count()
