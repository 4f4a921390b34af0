"""No key is ever written: not when an endpoint says it back in headers, bodies, errors and pages.

A workspace is run against an endpoint that does, by `headrace run` and in Dagster, with the key in
the environment or in the address. Then every file of the workspace, of Dagster and of MLflow, and
all that was printed, is searched, with what is packed in it unpacked: Parquet, SQLite, zlib, gzip.
"""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import os
import sqlite3
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest

from pipelines.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests" / "llm" / "echoing_server.py"
ANSWERS = ROOT / "tests" / "chaos" / "answers.py"
KEY = 'sk-planted/Key+42&<q>"z=='
PASSWORD = "planted:pass/w@rd+7"
ADDRESS = f"//planter:{quote(PASSWORD, safe='')}@"
IN_DAGSTER = """
import sys
from pathlib import Path
import dagster as dg
from dagster_project.definitions import build
with dg.DagsterInstance.local_temp(sys.argv[1]) as instance:
    keys = [dg.AssetKey(["trit", "translate", "pt"])]
    job = build(Path.cwd()).resolve_job_def("all")
    ended = job.execute_in_process(instance=instance, raise_on_error=False, asset_selection=keys)
    for event in instance.all_logs(ended.run_id):
        print(event.to_json() if hasattr(event, "to_json") else event, event.user_message)
    sys.exit(0 if ended.success else 3)
"""


@contextmanager
def echoing(log: Path, *options: str) -> Iterator[str]:
    """The endpoint's address."""
    command = [sys.executable, str(SERVER), "--answers", str(ANSWERS), "--log", str(log), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


def forms(secret: str) -> dict[str, bytes]:
    """Spellings of a secret; in base64 the part that it decides alone, wherever it stands."""
    raw, found = secret.encode(), {}
    for offset in range(3):
        whole = base64.b64encode(b"\0" * offset + raw)
        found[f"base64, {offset}"] = whole[-(-offset * 8 // 6) : (offset + len(raw)) * 8 // 6]
    spelled = {
        "as it is": secret, "url": quote(secret, safe=""), "html": html.escape(secret),
        "json": json.dumps(secret)[1:-1], "repr": repr(secret)[1:-1],
    }  # fmt: skip
    return found | {name: text.encode() for name, text in spelled.items()}


def unpacked(raw: bytes, depth: int = 0) -> Iterator[bytes]:
    """What is written, and what is packed in it."""
    yield raw
    if depth > 3:
        return
    if raw[:4] == b"PAR1":
        yield json.dumps(pl.read_parquet(io.BytesIO(raw)).to_dicts(), default=str).encode()
    elif raw[:16] == b"SQLite format 3\0":
        yield from _rows(raw, depth)
    elif raw[:2] == b"\x1f\x8b":
        yield from unpacked(gzip.decompress(raw), depth + 1)
    elif raw[:1] == b"\x78":
        try:
            yield from unpacked(zlib.decompress(raw), depth + 1)
        except zlib.error:
            return


def _rows(raw: bytes, depth: int) -> Iterator[bytes]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.text_factory = bytes
        db.deserialize(raw[:18] + b"\1\1" + raw[20:])  # not as one with a log beside it
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            for row in db.execute(f'SELECT * FROM "{name.decode()}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield from unpacked(value, depth + 1)


def settled(folder: Path) -> None:
    """Writes what SQLite keeps beside its files into them."""
    for path in [p for p in folder.rglob("*-wal") if p.stat().st_size]:
        with closing(sqlite3.connect(str(path).removesuffix("-wal"))) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            db.execute("PRAGMA journal_mode = DELETE").fetchall()


def hits(folder: Path, secret: str, **printed: str) -> list[str]:
    """Where a secret is found, and how it is spelled there."""
    settled(folder)
    found = []
    files = [
        p for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and "pipelines" not in p.parts
    ]
    places = {str(p): p.read_bytes() for p in files} | {k: v.encode() for k, v in printed.items()}
    wanted = forms(secret)
    for place, raw in places.items():
        for text in unpacked(raw):
            found += [f"{place}: {name}" for name, form in wanted.items() if form in text]
    return found


def ran(root: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    told = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_", "OPENAI_", "MLFLOW_"))}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=root, text=True, capture_output=True, check=False,
        env={**told, "HEADRACE_LLM_BACKEND": "openai", "PYTHONPATH": str(ROOT), **env},
    )  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    sets = [f"trit.{step}.allow_failed=1.0" for step in ("translate", "reason")]
    assert main(["init", "mine", *(word for s in sets for word in ("--set", s))]) == 0
    return tmp_path / "mine"


def test_a_run_against_an_endpoint_that_says_the_key_back_writes_it_nowhere(
    mine: Path, tmp_path: Path
) -> None:
    log, dagster = tmp_path / "seen", mine / "dagster"
    dagster.mkdir()
    with echoing(log) as url:
        env = {"HEADRACE_LLM_BASE_URL": url, "HEADRACE_LLM_API_KEY": KEY}
        shell = ran(mine, "-m", "pipelines", "run", "trit.feedback", **env)
        traced = ran(mine, "-m", "pipelines", "trace", _a_row(mine), **env)
        page = ran(mine, "-c", IN_DAGSTER, str(dagster), **env)
    assert (shell.returncode, traced.returncode) == (0, 0), shell.stderr + traced.stderr
    assert page.returncode == 0, page.stdout + page.stderr
    sent = log.read_text()
    assert KEY in sent and _kinds(sent).keys() == {"good", "bad request", "busy", "broken", "html"}

    told = {"shell": shell, "trace": traced, "page": page}
    assert hits(mine, KEY, **{name: t.stdout + t.stderr for name, t in told.items()}) == []
    _the_endpoint_said_it(mine)
    assert (mine / ".headrace" / "mlflow.db").is_file() and any(dagster.rglob("*.db"))
    (mine / "leak.txt").write_text(f"Bearer {KEY}")
    assert {hit.partition(": ")[0] for hit in hits(mine, KEY)} == {str(mine / "leak.txt")}, "it is blind"


def test_a_password_in_the_address_is_written_nowhere(mine: Path, tmp_path: Path) -> None:
    log = tmp_path / "seen"
    with echoing(log) as url:
        env = {"HEADRACE_LLM_BASE_URL": url.replace("//", ADDRESS)}
        shell = ran(mine, "-m", "pipelines", "run", "trit.translate@fr", **env)
    assert shell.returncode == 0, shell.stderr
    assert PASSWORD in log.read_text()
    assert hits(mine, PASSWORD, shell=shell.stdout + shell.stderr) == []
    _the_endpoint_said_it(mine)


def test_a_key_that_is_refused_is_named_nowhere(mine: Path, tmp_path: Path) -> None:
    with echoing(tmp_path / "seen", "--refuse") as url:
        env = {"HEADRACE_LLM_BASE_URL": url, "HEADRACE_LLM_API_KEY": KEY}
        shell = ran(mine, "-m", "pipelines", "run", "trit.translate@fr", **env)
        (mine / "dagster").mkdir()
        page = ran(mine, "-c", IN_DAGSTER, str(mine / "dagster"), **env)
    assert (shell.returncode, page.returncode) == (1, 3), shell.stderr + page.stderr
    for said in (shell.stderr, page.stdout):
        assert "the endpoint refuses the key (HTTP 401)" in said and "set HEADRACE_LLM_API_KEY" in said
    assert hits(mine, KEY, shell=shell.stdout + shell.stderr, page=page.stdout + page.stderr) == []


def _the_endpoint_said_it(root: Path) -> None:
    """It did say the key, in good answers and in refusals, and it was taken out."""
    store = (root / ".headrace" / "responses.sqlite").read_bytes()
    assert any(b'"request":{"headers":"' in t.replace(b" ", b"") and b"***" in t for t in unpacked(store))
    rejected = (root / "data" / "trit" / "translate" / "fr" / "rejected.parquet").read_bytes()
    assert any(b"bad request: " in t and b"***" in t for t in unpacked(rejected))


def _kinds(sent: str) -> Counter[str]:
    return Counter(line.partition(" Bearer")[0].partition(" Basic")[0] for line in sent.splitlines())


def _a_row(root: Path) -> str:
    return str(pl.read_parquet(root / "data" / "trit" / "reason" / "fr" / "rows.parquet")["row_id"][0])
