"""Endpoints by HTTPS: a good certificate is used and kept alive, a bad one is named with its cure."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pipelines.errors import EnvironmentFault
from pipelines.llm.client import open_client
from pipelines.llm.settings import Settings
from tests.llm.test_claims import questions

ANSWER = {"choices": [{"index": 0, "text": "four", "finish_reason": "stop"}]}
VECTOR = {"data": [{"index": 0, "embedding": [3.0, 4.0]}]}


def certify(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost, signed by itself, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
    return folder / "cert.pem", folder / "key.pem"


class Served:
    """An endpoint by HTTPS in a thread of its own; `connections` are those that it accepted."""

    def __init__(self, cert: Path, key: Path) -> None:
        self.cert, self.connections, self.port = cert, set[object](), 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        self._loop, up = asyncio.new_event_loop(), threading.Event()
        self._up = up
        threading.Thread(target=self._run, daemon=True).start()
        assert up.wait(20)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._up.set()
        self._loop.run_forever()

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._context).start()
        self.port = runner.addresses[0][1]

    async def _answer(self, request: web.Request) -> web.Response:
        self.connections.add(request.transport)
        return web.json_response(VECTOR if request.path.endswith("embeddings") else ANSWER)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    for name in ("HEADRACE_LLM_BACKEND", "HEADRACE_LLM_BASE_URL", "HEADRACE_LLM_MODEL", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    server = Served(*certify(tmp_path))
    yield server
    server.stop()


ASKING = """
import sys
from pathlib import Path
from pipelines.llm.client import open_client
from pipelines.llm.settings import Settings
from tests.llm.test_claims import questions
with open_client(Settings("openai", "m", sys.argv[1], concurrency=1), Path(sys.argv[2])) as client:
    print([a.text for a in client.answers(questions(5))], client.embed(["a"], model="e", prefix="").round(1))
"""


def test_answers_and_vectors_come_by_https_on_connections_that_are_kept(
    served: Served, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", ASKING, f"https://localhost:{served.port}", str(tmp_path / "s.sqlite")]
    trusting = os.environ | {"SSL_CERT_FILE": str(served.cert)}  # read when a process starts to ask
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=trusting, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == f"{['four'] * 5} [[0.6 0.8]]", done.stderr
    assert len(served.connections) == 1


def test_a_certificate_that_nobody_vouches_for_ends_the_run_with_the_cure(
    served: Served, tmp_path: Path
) -> None:
    told = Settings("openai", "m", f"https://localhost:{served.port}", concurrency=1)
    with (
        open_client(told, tmp_path / "s.sqlite") as client,
        pytest.raises(EnvironmentFault, match="certificate is not trusted") as raised,
    ):
        list(client.answers(questions(1)))
    assert "SSL_CERT_FILE" in str(raised.value)
    assert not served.connections
