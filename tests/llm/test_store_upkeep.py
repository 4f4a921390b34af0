"""Damage is found wherever it is and asked again; an export carries answers and overwrites none."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from questions import question, settings

from pipelines.errors import EnvironmentFault
from pipelines.llm.answer import Failure, Usage
from pipelines.llm.backends.replay import ReplayMiss
from pipelines.llm.client import open_client
from pipelines.llm.prices import Price, told_usd, unpriced
from pipelines.llm.protocol import Token, read_logprobs
from pipelines.llm.request import Request, Sampling, named_request, request_key
from pipelines.llm.settings import Settings
from pipelines.llm.store import KEPT_FAILURES, Kept, Record, Store
from pipelines.llm.store_errors import BrokenStore, NewerStore, NotAStore, ReadOnlyStore
from pipelines.llm.store_export import export_all, export_some
from pipelines.llm.store_lent import Merged, schema, take_in
from pipelines.llm.store_upkeep import prunable, prune, stats, verify

REPLAY = Settings(backend="replay", model="scripted")
VECTOR = Request("embedding", "", prompt="query: x")
VECTOR_KEY = request_key(VECTOR, "e5")


def record(number: int, text: str = "four", failure: Failure | None = None) -> Record:
    named = named_request(question(number), "scripted", "name:scripted")
    kept = Kept(text, "stop", Usage(5, 2, 0.25, 3), failure)
    history = '[{"outcome": "overloaded", "seconds": 0.5, "waited_s": 1.0}]'
    return Record(
        named.key, "completion", "scripted", "name:scripted", named.canonical, kept, b'{"raw": true}', 12, 2,
        f"row{number}", "test", history, '[{"sha256": "aa", "ref": "a.png"}]', 1_700_000_000,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        opened.put([record(n, f"answer {n}") for n in range(5)])
        opened.put_embeddings("e5", [(VECTOR_KEY, "query: x", np.arange(4, dtype=np.float32))])
        yield opened


def tamper(path: Path, assignment: str, number: int = 2, table: str = "answers") -> None:
    key = record(number).key if table == "answers" else VECTOR_KEY
    with sqlite3.connect(path) as raw:
        raw.execute(f"UPDATE {table} SET {assignment} WHERE key = ?", (bytes.fromhex(key),))


@pytest.mark.parametrize(
    "assignment",
    """
    text='answr 2'; finish='length'; failure='refused'; detail='x'; prompt_tokens=6; cost_usd=0.26;
    cached_tokens=0;
    request=replace(request, '2', '3'); body=substr(body, 2); history='[]'; media='[]'; model='other';
    kind='chat'; identity='name:other'; latency_ms=13; attempts=1; row='row3'; purpose='p';
    made_at=1; whole=0; checksum=0;
    text=CAST(x'ff61' AS TEXT); text=x'00'; text=7
    """.replace("\n", " ")
    .strip()
    .split(";"),
)
def test_damage_of_any_column_is_found_set_aside_and_kept_for_a_look(store: Store, assignment: str) -> None:
    tamper(store.path, assignment.strip())
    key = record(2).key
    assert store.record(key) is None
    found = verify(store)
    assert (found.answers, found.damaged) == (5, {"answers": [bytes.fromhex(key)], "embeddings": []})
    assert store.set_aside("answers", found.damaged["answers"]) == 1
    ((source, where, content),) = store.query("SELECT source, key, content FROM damaged")
    assert (source, where) == ("answers", bytes.fromhex(key))
    assert json.loads(content)[0] == f"hex:{key}"
    assert verify(store).count == 0
    assert store.put([record(2, "asked again")])[key].text == "asked again"


def test_a_row_under_the_key_of_another_request_is_found(store: Store) -> None:
    with sqlite3.connect(
        store.path
    ) as raw:  # checksums as they should be, for a key that is not the request's
        raw.execute("DELETE FROM answers WHERE key = ?", (bytes.fromhex(record(1).key),))
    store.put([replace(record(1), request=record(7).request)])
    assert verify(store).damaged["answers"] == [bytes.fromhex(record(1).key)]


def test_a_damaged_vector_is_found_and_made_again(store: Store) -> None:
    tamper(store.path, "vector = substr(vector, 5)", table="embeddings")
    assert store.embeddings([VECTOR_KEY]) == {}
    assert verify(store).damaged["embeddings"] == [bytes.fromhex(VECTOR_KEY)]
    store.put_embeddings("e5", [(VECTOR_KEY, "query: x", np.ones(4, np.float32))])
    assert np.array_equal(store.embeddings([VECTOR_KEY])[VECTOR_KEY], np.ones(4))
    assert store.query("SELECT count(*) FROM damaged") == [(1,)]


def test_a_row_that_was_mended_meanwhile_is_not_set_aside(store: Store) -> None:
    assert store.set_aside("answers", [bytes.fromhex(record(2).key)]) == 0
    assert store.answers([record(2).key])[record(2).key].text == "answer 2"


def test_only_the_damaged_answer_is_asked_again(serve, tmp_path: Path) -> None:
    server, path = serve(), tmp_path / "asked.sqlite"
    with open_client(settings(server.url), path) as client:
        first = {a.id: a.text for a in client.answers(map(question, range(10)))}
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE answers SET text = 'wrong' WHERE row = 'row4'")
    with open_client(settings(server.url), path) as client:
        assert {a.id: a.text for a in client.answers(map(question, range(10)))} == first
        assert client.spent.asked == 1
    assert len(server.requests()) == 11
    with Store(path) as store:
        assert stats(store)["damaged"] == 1


def test_stats_add_up(store: Store) -> None:
    store.put([replace(record(9, "cut", Failure.LENGTH), model="big", purpose="")])
    told = stats(store)
    assert (told["answers"], told["embeddings"], told["damaged"], told["version"]) == (6, 1, 0, 2)
    assert (told["prompt_tokens"], told["completion_tokens"], told["cost_usd"]) == (30, 12, 1.5)
    assert {m: s["answers"] for m, s in told["models"].items()} == {"scripted": 5, "big": 1}
    assert {m: s["answers"] for m, s in told["purposes"].items()} == {"test": 5, "(unnamed)": 1}
    assert {m: s["answers"] for m, s in told["outcomes"].items()} == {"ok": 5, "length": 1}
    assert told["bytes"] >= store.path.stat().st_size > 0


def costing(number: int, usd: float, identity: str, model: str) -> Record:
    kept = Kept("four", "stop", Usage(5, 2, usd))
    return replace(record(number), kept=kept, identity=identity, model=model)


def test_a_price_that_nobody_knows_is_no_zero(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.put(
            [
                costing(1, 0.0, "name:dear", "dear"),
                costing(2, 0.5, "name:dear", "dear"),
                costing(3, 0.0, "name:other", "other"),
                costing(4, 0.0, "name:gift", "gift"),
                costing(5, 0.0, "sha256:ab", "here"),
            ]
        )
        told = stats(store, {"gift": Price(0.0, 0.0), "dear": Price(1.0, 2.0)})
    known = {model: (sums["cost_usd"], sums["unpriced"]) for model, sums in told["models"].items()}
    assert known == {"dear": (0.5, 1), "other": (None, 1), "gift": (0.0, 0), "here": (0.0, 0)}
    assert (told["cost_usd"], told["unpriced"]) == (0.5, 2)
    assert (told_usd(0.5, 2), told_usd(0.0, 1), told_usd(0.0, 0)) == ("at least 0.5000", "unknown", "0.0000")
    assert {(unpriced("name:m", Usage(5, 2, usd), Price(*price) if price else None)) for usd, price in (
        (0.0, None), (0.0, (1.0, 2.0)),
    )} == {True}  # fmt: skip


@pytest.mark.parametrize(
    ("identity", "usd", "price"),
    [("name:m", 0.1, None), ("name:m", 0.0, Price(0.0, 0.0)), ("sha256:ab", 0.0, None)],
)
def test_a_price_is_known_that_was_paid_is_free_or_is_of_weights_known_here(
    identity: str, usd: float, price: Price | None
) -> None:
    assert not unpriced(identity, Usage(5, 2, usd), price)


def test_an_export_is_the_same_bytes_whatever_the_order_of_commits(store: Store, tmp_path: Path) -> None:
    done = export_all(store, tmp_path / "a.parquet")
    assert (done.answers, done.embeddings) == (5, 1)
    with Store(tmp_path / "other.sqlite") as other:
        other.put_embeddings("e5", [(VECTOR_KEY, "query: x", np.arange(4, dtype=np.float32))])
        for n in (3, 1, 4, 0, 2):
            other.put([record(n, f"answer {n}")])
        export_all(other, tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    keys = pl.read_parquet(tmp_path / "a.parquet")["key"].to_list()
    assert keys == sorted(keys)


def test_an_export_brings_back_every_field_of_a_record(store: Store, tmp_path: Path) -> None:
    export_all(store, tmp_path / "a.parquet")
    with Store(tmp_path / "new.sqlite") as other:
        assert take_in(other, tmp_path / "a.parquet") == Merged(new=6)
        for n in range(5):
            got = other.record(record(n).key)
            assert got == record(n, f"answer {n}")
            assert got.made_at == 1_700_000_000
        assert np.array_equal(other.embeddings([VECTOR_KEY])[VECTOR_KEY], np.arange(4))
        assert verify(other).count == 0


@hypothesis.given(
    text=st.text(),
    detail=st.text(),
    body=st.binary(),
    usd=st.floats(0, 1e9),
    tokens=st.integers(0, 2**40),
    failure=st.sampled_from([None, *sorted(KEPT_FAILURES)]),
)
@hypothesis.settings(max_examples=40, deadline=None)
def test_whatever_a_model_says_comes_back_from_store_and_export(
    text: str, detail: str, body: bytes, usd: float, tokens: int, failure: Failure | None
) -> None:
    kept = Kept(text, "stop", Usage(tokens, tokens + 1, usd, tokens // 2), failure, detail)
    told = replace(record(1), kept=kept, body=body)
    with tempfile.TemporaryDirectory() as folder, Store.without_file() as there, Store.without_file() as back:
        assert there.put([told]) == {told.key: kept}
        assert there.answers([told.key]) == {told.key: kept}
        assert there.record(told.key) == told
        export_all(there, Path(folder) / "a.parquet")
        assert take_in(back, Path(folder) / "a.parquet") == Merged(new=1)
        assert back.record(told.key) == told


def test_a_plain_export_leaves_out_when_and_how_fast(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "slow.sqlite") as slow:
        slow.put(
            [
                replace(
                    record(n, f"answer {n}"), latency_ms=9, attempts=5, history="[]", body=b"x", made_at=n + 1
                )
                for n in range(5)
            ]
        )
        keys = [record(n).key for n in range(5)]
        export_some(slow, keys, [], tmp_path / "slow.parquet", plain=True)
        assert export_some(store, keys, [], tmp_path / "fast.parquet", plain=True).answers == 5
    assert (tmp_path / "slow.parquet").read_bytes() == (tmp_path / "fast.parquet").read_bytes()


def test_a_plain_export_keeps_the_log_probabilities_that_were_asked_for(store: Store, tmp_path: Path) -> None:
    alternatives = [{"token": "Bo", "logprob": -1.0}]
    told = {"content": [{"token": "Ann", "logprob": -0.5, "top_logprobs": alternatives}]}
    keys = []
    for logprobs, said in ((1, told), (2, None), (None, told)):  # asked; asked in vain; told unasked
        sampling = Sampling(8, logprobs=logprobs)
        named = named_request(Request("completion", "m", sampling, prompt="Who?"), "m", "i")
        body = orjson.dumps({"choices": [{"text": "Ann", "logprobs": said}], "timings": {"ms": 17}})
        store.put([replace(record(0), key=named.key, request=named.canonical, body=body)])
        keys.append(named.key)
    export_some(store, keys, [], tmp_path / "plain.parquet", plain=True)
    with Store(tmp_path / "plain.parquet") as pulled:
        found = pulled.full(keys)
    assert read_logprobs(found[keys[0]].body) == [Token("Ann", -0.5, {"Bo": -1.0})]
    assert b"timings" not in found[keys[0]].body
    assert [found[key].body for key in keys[1:]] == [b"", b""]


def test_an_import_keeps_what_was_committed_first_and_counts_the_conflicts(
    store: Store, tmp_path: Path
) -> None:
    export_all(store, tmp_path / "a.parquet")
    with Store(tmp_path / "mine.sqlite") as mine:
        mine.put([record(0, "answer 0"), record(1, "my own answer")])
        mine.put_embeddings("e5", [(VECTOR_KEY, "query: x", np.ones(4, np.float32))])
        assert take_in(mine, tmp_path / "a.parquet") == Merged(new=3, same=1, conflicting=2)
        assert mine.answers([record(1).key])[record(1).key].text == "my own answer"
        assert np.array_equal(mine.embeddings([VECTOR_KEY])[VECTOR_KEY], np.ones(4))
        assert take_in(mine, tmp_path / "a.parquet") == Merged(same=4, conflicting=2)


def test_another_store_is_imported_without_its_damaged_rows(store: Store, tmp_path: Path) -> None:
    tamper(store.path, "text = 'wrong'")
    with Store(tmp_path / "mine.sqlite") as mine:
        assert take_in(mine, store.path) == Merged(new=5, refused=1)
        assert mine.count() == 4


def test_a_file_of_which_pages_are_broken_is_named_and_all_else_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "big.sqlite"
    with Store(path) as big:
        big.put([record(n, f"answer {n}") for n in range(2000)])
        (pages,) = big.query("PRAGMA page_count")[0]
        big.compact()
    raw = bytearray(path.read_bytes())
    for page in range(pages // 2, pages // 2 + 4):
        raw[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    path.write_bytes(bytes(raw))
    keys = [record(n).key for n in range(2000)]
    with (
        Store(path) as big,
        pytest.raises(BrokenStore, match="fails: .*move it away, then .headrace store import"),
    ):
        big.answers(keys)
    with Store(tmp_path / "new.sqlite") as new:
        assert take_in(new, path).new > 1900
        found = new.answers(keys)
        assert len(found) > 1900
        assert all(found[k].text == f"answer {n}" for n, k in enumerate(keys) if k in found)
        assert verify(new).count == 0


def test_an_import_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    with Store(tmp_path / "big.sqlite") as big:
        big.put([record(n, f"answer {n}") for n in range(2500)])
        export_all(big, tmp_path / "big.parquet")
    script = (
        "import os, signal, sys; from pathlib import Path; from pipelines.llm.store import Store\n"
        "from pipelines.llm.store_lent import take_in\n"
        "put, groups = Store.put, [0]\n"
        "def armed(store, records):\n"
        "    groups[0] += 1\n"
        "    if groups[0] == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return put(store, records)\n"
        "Store.put = armed\n"
        "take_in(Store(Path(sys.argv[1])), Path(sys.argv[2]))\n"
    )
    paths = [str(tmp_path / "into.sqlite"), str(tmp_path / "big.parquet")]
    assert subprocess.run([sys.executable, "-c", script, *paths], check=False).returncode == -signal.SIGKILL
    with Store(tmp_path / "into.sqlite") as into:
        assert into.count() == 2000
        assert take_in(into, tmp_path / "big.parquet") == Merged(new=500, same=2000)
        assert verify(into).count == 0


def test_a_row_whose_key_is_not_of_its_request_is_not_imported(store: Store, tmp_path: Path) -> None:
    export_all(store, tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    at = table["key"].to_pylist().index(record(2).key)
    requests = table["request"].to_pylist()
    requests[at] = requests[at].replace("2 + 2", "2 + 3")
    table = table.set_column(4, table.schema.field("request"), pa.array(requests))
    pq.write_table(table, tmp_path / "forged.parquet")
    with Store(tmp_path / "mine.sqlite") as mine:
        assert take_in(mine, tmp_path / "forged.parquet") == Merged(new=5, refused=1)
        assert mine.answers([record(2).key]) == {}


def with_value(path: Path, column: str, key: str, value: object) -> None:
    """The export at `path` with one value of one row changed."""
    table = pq.read_table(path)
    values, at = table[column].to_pylist(), table["key"].to_pylist().index(key)
    values[at] = value
    field = pa.field(column, table.schema.field(column).type)
    place = table.schema.get_field_index(column)
    changed = table.set_column(place, field, pa.array(values, field.type))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)


@pytest.mark.parametrize("column", [c for c in schema().names if c != "vector"])
def test_a_row_that_lacks_a_value_is_refused_alone(store: Store, tmp_path: Path, column: str) -> None:
    export_all(store, tmp_path / "a.parquet")
    with_value(tmp_path / "a.parquet", column, record(2).key, None)
    with Store(tmp_path / "mine.sqlite") as mine:
        assert take_in(mine, tmp_path / "a.parquet") == Merged(new=5, refused=1)
        assert mine.count() == 4 and set(mine.embeddings([VECTOR_KEY])) == {VECTOR_KEY}


@pytest.mark.parametrize(
    ("column", "key", "value"),
    [
        ("failure", record(2).key, "no such failure"),
        ("vector", VECTOR_KEY, None),
        ("vector", VECTOR_KEY, b"\0" * 15),
    ],
)
def test_a_row_whose_value_cannot_be_is_refused_alone(
    store: Store, tmp_path: Path, column: str, key: str, value: object
) -> None:
    export_all(store, tmp_path / "a.parquet")
    with_value(tmp_path / "a.parquet", column, key, value)
    with Store(tmp_path / "mine.sqlite") as mine:
        assert take_in(mine, tmp_path / "a.parquet") == Merged(new=5, refused=1)


def damaged(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[200] ^= 0xFF
    path.write_bytes(bytes(raw))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


def foreign(path: Path) -> None:
    pl.DataFrame({"key": ["a"]}).write_parquet(path)


def text(path: Path) -> None:
    path.write_text("question,answer\n")


def newer(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"headrace.answers": b"9"}), path)


def of_another_type(path: Path) -> None:
    table = pq.read_table(path)
    place = table.schema.get_field_index("text")
    pq.write_table(table.set_column(place, "text", pa.array([1] * table.num_rows)), path)


def without_a_column(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop(["detail"]), path)


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (damaged, NotAStore, "the export is damaged or no Parquet file"),
        (cut, NotAStore, "the export is damaged or no Parquet file"),
        (text, NotAStore, "the export is damaged or no Parquet file"),
        (foreign, NotAStore, "is no export of a response store"),
        (newer, NewerStore, "the export has version 9, this headrace reads up to 1"),
        (of_another_type, NotAStore, "the export's column 'text' is absent or of another type"),
        (without_a_column, NotAStore, "the export's column 'detail' is absent or of another type"),
        (gone, NotAStore, "there is no such file"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_in_one_line(
    store: Store, tmp_path: Path, spoil, error: type[EnvironmentFault], says: str
) -> None:
    export_all(store, tmp_path / "a.parquet")
    spoil(tmp_path / "a.parquet")
    with Store(tmp_path / "mine.sqlite") as mine, pytest.raises(error, match=says) as told:
        take_in(mine, tmp_path / "a.parquet")
    assert "\n" not in str(told.value)
    assert str(told.value).startswith(str(tmp_path / "a.parquet"))


def test_an_export_to_a_full_disk_leaves_the_earlier_one(store: Store, tmp_path: Path) -> None:
    export_all(store, tmp_path / "a.parquet")
    before = (tmp_path / "a.parquet").read_bytes()
    script = (
        "import resource, signal, sys; from pathlib import Path; from pipelines.errors import HeadraceError\n"
        "from pipelines.llm.store import Store; from pipelines.llm.store_export import export_all\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "with Store(Path(sys.argv[1]), readonly=True) as store:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "    try: export_all(store, Path(sys.argv[2]))\n"
        "    except HeadraceError as e: print(e)\n"
    )
    paths = [str(store.path), str(tmp_path / "a.parquet")]
    told = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, check=True)
    assert "cannot write" in told.stdout
    assert "free some disk space" in told.stdout
    assert (tmp_path / "a.parquet").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".tmp"] == []


def test_a_disk_that_is_full_costs_no_stored_answer(store: Store) -> None:
    script = (
        "import os, resource, signal, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
        "from dataclasses import replace; from test_store_upkeep import record\n"
        "from pipelines.errors import HeadraceError; from pipelines.llm.store import Store\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "with Store(Path(sys.argv[1])) as store:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "    try: store.put([replace(record(n), body=os.urandom(9000)) for n in range(50, 90)])\n"
        "    except HeadraceError as e: print(type(e).__name__, e)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(store.path), str(Path(__file__).parent)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.startswith("FullDisk")
    assert store.count() == 5
    assert verify(store).count == 0
    assert store.put([record(50)])[record(50).key].text == "four"


def test_prune_takes_away_what_is_not_kept_and_nothing_else(store: Store) -> None:
    going = prunable(store, [record(n).key for n in (1, 3)], [])
    assert sorted(going.keys["answers"]) == sorted(bytes.fromhex(record(n).key) for n in (0, 2, 4))
    assert (going.keys["embeddings"], going.rows) == (
        [bytes.fromhex(VECTOR_KEY)],
        {"answers": 5, "embeddings": 1},
    )
    assert store.count() == 5
    assert prune(store, going) is True
    assert sorted(k for n in range(5) for k in store.answers([record(n).key])) == sorted(
        record(n).key for n in (1, 3)
    )
    assert store.embeddings([VECTOR_KEY]) == {}


def test_prune_keeps_all_that_was_asked_for_a_stage_that_is_not_fresh(store: Store) -> None:
    asked = {
        10: "trit.translate@fr", 11: "trit.translate@fr repair", 12: "trit.translate@de",
        13: "trit.translate", 14: "trit.translated@fr", 15: "",
    }  # fmt: skip
    store.put([replace(record(n), purpose=purpose) for n, purpose in asked.items()])
    reached = [record(n).key for n in range(5)]
    going = prunable(store, reached, [], ["trit.translate@fr"], every_vector=True)
    assert going.keys["answers"] == sorted(bytes.fromhex(record(n).key) for n in (12, 14, 15))
    assert going.keys["embeddings"] == []
    assert going.rows == {"answers": 11, "embeddings": 1}


def test_a_client_takes_what_its_store_lacks_from_a_lent_export_and_asks_only_the_rest(
    serve, store: Store, tmp_path: Path
) -> None:
    export_all(store, tmp_path / "lent.parquet")
    server = serve()
    with open_client(settings(server.url), tmp_path / "new.sqlite", tmp_path / "lent.parquet") as client:
        told = {a.request.row: a.text for a in client.answers(map(question, range(7)))}
        assert (client.spent.stored, client.spent.asked) == (5, 2)
    assert {f"row{n}": f"answer {n}" for n in range(5)}.items() <= told.items()
    assert len(server.requests()) == 2
    with open_client(
        settings(server.url), tmp_path / "new.sqlite"
    ) as client:  # what was taken is its own now
        assert {a.request.row: a.text for a in client.answers(map(question, range(7)))} == told
    assert len(server.requests()) == 2


def test_a_store_answers_before_a_lent_export_does(store: Store, tmp_path: Path) -> None:
    export_all(store, tmp_path / "lent.parquet")
    with Store(tmp_path / "mine.sqlite", lent=tmp_path / "lent.parquet") as mine:
        mine.put([record(1, "my own answer")])
        found = mine.answers([record(n).key for n in range(6)])
    assert {k: v.text for k, v in found.items()} == {
        record(n).key: "my own answer" if n == 1 else f"answer {n}" for n in range(5)
    }


def test_an_export_is_replayed_by_its_path_and_takes_no_answer(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    export_all(store, path)
    before = path.read_bytes()
    with open_client(REPLAY, path) as client:
        texts = {a.request.row: a.text for a in client.answers(map(question, range(5)))}
        with pytest.raises(ReplayMiss, match="nearest stored one, of row row2, in prompt, seed"):
            list(client.answers([replace(question(60), row="new")]))
        with pytest.raises(ReadOnlyStore, match="an export takes no further answers .*headrace store import"):
            client.store.put([record(9)])
    assert texts == {f"row{n}": f"answer {n}" for n in range(5)}
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if "run" in p.name) == ["run.parquet"]


def test_with_an_export_for_a_store_nothing_is_asked(serve, store: Store, tmp_path: Path) -> None:
    export_all(store, tmp_path / "run.parquet")
    server = serve()
    with open_client(settings(server.url), tmp_path / "run.parquet") as client:
        assert len(list(client.answers(map(question, range(5))))) == 5
        with pytest.raises(ReadOnlyStore, match="takes no further answers"):
            list(client.answers([question(50)]))
    assert server.requests() == []


def test_a_reader_of_a_lent_export_needs_no_store_and_makes_none(store: Store, tmp_path: Path) -> None:
    export_all(store, tmp_path / "lent.parquet")
    with Store(tmp_path / "none.sqlite", readonly=True, lent=tmp_path / "lent.parquet") as reader:
        assert reader.full([record(3).key]) == {record(3).key: record(3, "answer 3")}
        assert np.array_equal(reader.embeddings([VECTOR_KEY])[VECTOR_KEY], np.arange(4))
    assert not (tmp_path / "none.sqlite").exists()


def test_embeddings_of_an_endpoint_are_replayed_and_a_missing_one_is_named(serve, tmp_path: Path) -> None:
    server = serve()
    with open_client(settings(server.url), tmp_path / "s") as client:
        told = client.embed(["one", "two"], model="embedder")
        assert len(client.embedded or ()) == 2
        export_all(client.store, tmp_path / "e.parquet")
    server.stop()
    with open_client(REPLAY, tmp_path / "e.parquet") as client:
        assert np.array_equal(client.embed(["one", "two"], model="embedder"), told)
        with pytest.raises(ReplayMiss, match="no stored embedding by embedder of 1 texts.*'query: three'"):
            client.embed(["one", "three"], model="embedder")
