"""Of several runs that want one answer at once, one asks and the others take what it stored."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentFault, StageError
from pipelines.llm import waiting
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.claimants import Seen
from pipelines.llm.claims import Claims
from pipelines.llm.client import Client, open_client
from pipelines.llm.embeddings import keys_of
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings
from pipelines.llm.stops import KeyRefused
from pipelines.llm.waiting import Waiting
from tests.llm.scripted_server import ScriptedServer

KEYS = [f"{n:064x}" for n in (0, 16**50, 16**63, 16**64 - 1)]
HOLDER = """
import sys
from pathlib import Path
from pipelines.llm.claims import Claims
claims = Claims(Path(sys.argv[1]))
assert claims.take([sys.argv[2]], "holder")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_LLM_BACKEND", "HEADRACE_LLM_BASE_URL", "HEADRACE_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)


def questions(count: int) -> list[Request]:
    return [Request("completion", "m", Sampling(8), prompt=f"question {n}") for n in range(count)]


def ask(server: ScriptedServer, store: Path, count: int) -> list[Answer]:
    with open_client(Settings("openai", "m", server.url, concurrency=4), store) as client:
        return sorted(client.answers(questions(count)), key=lambda a: a.request.prompt or "")


def test_a_claim_keeps_others_off_until_it_is_given_back(tmp_path: Path) -> None:
    ours, theirs = Claims(tmp_path / "s.sqlite"), Claims(tmp_path / "s.sqlite")
    assert ours.take(KEYS, "a") == set(KEYS)
    assert theirs.take(KEYS, "b") == set()
    ours.give(KEYS[:1], "a")
    assert theirs.take(KEYS, "b") == set(KEYS[:1])
    ours.give_all("a")
    assert theirs.take(KEYS[:2], "b") == set(KEYS[1:2]), "the first is its own already"
    theirs.close()
    assert ours.take(KEYS, "a") == set(KEYS)
    ours.close()


def test_one_owner_gives_nothing_of_another(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "s.sqlite")
    assert claims.take([KEYS[1]], "a")
    assert not claims.take([KEYS[1]], "b")
    claims.give([KEYS[1]], "b")
    claims.give_all("b")
    assert not claims.take([KEYS[1]], "b")
    claims.close()


def test_a_claim_given_back_after_the_end_opens_no_file(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "s.sqlite")
    assert claims.take([KEYS[0]], "a")
    claims.close()
    claims.give([KEYS[0]], "a")
    claims.give_all("a")
    assert list((tmp_path / "s.claimants").iterdir()) == []


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(store), KEYS[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    claims = Claims(store)
    assert not claims.take([KEYS[2]], "us")
    holder.kill()
    holder.wait()
    assert claims.take([KEYS[2]], "us")
    holder.stdin.close()
    holder.stdout.close()


CONTENDER = """
import os, random, sys
from pathlib import Path
from pipelines.llm.claims import Claims
claims, marks, draw = Claims(Path(sys.argv[1])), Path(sys.argv[2]), random.Random(sys.argv[3])
keys, held = [f"{n << 200:064x}" for n in range(12)], 0
for _ in range(1500):
    ours = claims.take(draw.sample(keys, 3), "a")
    for key in ours:
        os.close(os.open(marks / key, os.O_CREAT | os.O_EXCL))  # fails where another has it
    for key in ours:
        (marks / key).unlink()
    claims.give(ours, "a")
    held += len(ours)
print(held)
"""


def test_no_two_of_many_processes_ever_have_one_question_and_all_get_some(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    command = [sys.executable, "-c", CONTENDER, str(tmp_path / "s.sqlite"), str(tmp_path / "marks")]
    runs = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
    held = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * 4
    assert all(int(said) > 500 for said in held)
    assert list((tmp_path / "s.claimants").iterdir()) != []  # ended without a close: the next one sweeps
    assert Claims(tmp_path / "s.sqlite").take(KEYS, "us") == set(KEYS)
    assert len(list((tmp_path / "s.claimants").iterdir())) == 1


def test_where_nothing_can_be_claimed_that_is_said_and_nothing_is_held(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "s.sqlite")
    (tmp_path / "s.claimants").write_text("a file in the place of the folder")
    with pytest.raises(EnvironmentFault, match="questions cannot be claimed") as raised:
        claims.take(KEYS, "a")
    assert raised.value.where == str(tmp_path / "s.claimants")
    (tmp_path / "s.claimants").unlink()
    assert claims.take(KEYS, "a") == set(KEYS)


def test_a_file_of_another_that_is_half_written_or_not_its_own_stops_nobody(tmp_path: Path) -> None:
    theirs, ours = Claims(tmp_path / "s.sqlite"), Claims(tmp_path / "s.sqlite")
    assert theirs.take(KEYS[:1], "b")
    file = tmp_path / "s.claimants" / theirs.claimants.id
    for raw in (b"", b"{", b"not JSON\n\x01\x02", b"[]\n"):
        file.write_bytes(raw)
        assert ours.take(KEYS, "a") == set(KEYS)
        assert ours.other(theirs.claimants.id) is None or ours.other(theirs.claimants.id).who is None
        ours.give_all("a")
    assert file.exists()


def test_two_clients_that_want_the_same_answers_at_once_pay_for_each_once(tmp_path: Path) -> None:
    with ScriptedServer(latency_ms=20) as server, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(ask, server, tmp_path / "s.sqlite", 60) for _ in range(2)]
        one, other = (run.result() for run in runs)
        assert [a.text for a in one] == [a.text for a in other]
        assert len(one) == 60 and all(a.ok for a in one)
        assert len(server.asked()) == 60 and set(server.asked().values()) == {1}
        assert sum(a.stored for a in (*one, *other)) == 60


def test_what_another_could_not_get_is_asked_by_who_waited_for_it(tmp_path: Path) -> None:
    fault = {"status": 400, "body": "no"}
    with ScriptedServer({"faults": [fault]}, latency_ms=200) as server, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(ask, server, tmp_path / "s.sqlite", 1) for _ in range(2)]
        ends = [run.result()[0] for run in runs]
        assert {a.failure for a in ends} == {Failure.BAD_REQUEST, None}
        assert list(server.asked().values()) == [2]


def test_who_leaves_early_leaves_the_question_to_others(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with ScriptedServer(latency_ms=20) as server:
        client = open_client(Settings("openai", "m", server.url, concurrency=1), store)
        answers = client.answers(questions(30))
        next(answers)
        answers.close()
        assert all(a.ok for a in ask(server, store, 30))
        client.close()


def test_two_calls_of_one_client_in_turns_pay_for_each_question_once(tmp_path: Path) -> None:
    with (
        ScriptedServer(latency_ms=20) as server,
        open_client(Settings("openai", "m", server.url, concurrency=2), tmp_path / "s.sqlite") as client,
    ):
        one, other = client.answers(questions(8)), client.answers(questions(8))
        firsts = [next(one), next(other)]
        assert len(firsts) + len(list(one)) + len(list(other)) == 16
        assert set(server.asked().values()) == {1} and len(server.asked()) == 8


def test_a_question_that_failed_is_free_although_nobody_has_read_its_end(tmp_path: Path) -> None:
    fault = {"status": 400, "body": "no"}
    store = tmp_path / "s.sqlite"
    with ScriptedServer({"faults": [None, fault]}, latency_ms=20) as server:
        settings = Settings("openai", "m", server.url, concurrency=1)
        with open_client(settings, store) as one, open_client(settings, store) as other:
            suspended = one.answers(questions(2))
            assert next(suspended).ok
            [answer] = other.answers(questions(2)[1:])
            assert answer.ok
            suspended.close()


def test_what_stopped_one_client_stops_nobody_who_waits_for_it(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with ScriptedServer({"faults": [None, {"status": 401}]}) as bad, ScriptedServer() as good:
        refused = Settings("openai", "m", bad.url, concurrency=1)
        served = Settings("openai", "m", good.url)
        with open_client(refused, store) as one, open_client(served, store) as other:
            suspended = one.answers(questions(6))
            assert next(suspended).ok
            assert all(a.ok for a in other.answers(questions(6)))
            with pytest.raises(EnvironmentFault):
                list(suspended)


def drop_a_call(client: Client) -> None:
    """Leave one that has answers under way to the collector."""
    held: dict[str, object] = {}
    held["itself"], held["rows"] = held, client.answers(questions(300))
    next(held["rows"])  # type: ignore[call-overload]


def test_a_call_that_the_collector_ends_in_the_couriers_own_thread_stops_nothing(tmp_path: Path) -> None:
    with (
        ScriptedServer(latency_ms=20) as server,
        open_client(Settings("openai", "m", server.url), tmp_path / "s.sqlite") as client,
    ):
        drop_a_call(client)
        client.courier()._loop.call_soon_threadsafe(gc.collect)  # type: ignore[union-attr]
        others = [Request("completion", "m", Sampling(8), prompt=f"other {n}") for n in range(5)]
        assert all(a.ok for a in client.answers(others))


def test_a_call_that_the_collector_ends_while_questions_are_claimed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The courier waits for the claims; whoever holds them is in the collector, and must not wait for it."""
    with (
        ScriptedServer(latency_ms=100) as server,
        open_client(Settings("openai", "m", server.url), tmp_path / "s.sqlite") as client,
    ):
        drop_a_call(client)
        others = client.claims.claimants.others

        def slowly(stalled: Mapping[str, int] | None = None) -> list[Seen]:
            time.sleep(0.4)
            gc.collect()
            return others(stalled)

        monkeypatch.setattr(client.claims.claimants, "others", slowly)
        more = [Request("completion", "m", Sampling(8), prompt=f"other {n}") for n in range(5)]
        with ThreadPoolExecutor(1) as pool:
            assert all(a.ok for a in pool.submit(list, client.answers(more)).result(timeout=30))
        monkeypatch.undo()
        assert all(a.ok for a in client.answers(questions(300))), "and what it had asked is free"


EXITING = """
import sys
from pathlib import Path
from pipelines.llm.client import open_client
from pipelines.llm.settings import Settings
from tests.llm.test_claims import questions
client = open_client(Settings("openai", "m", sys.argv[1], concurrency=4), Path(sys.argv[2]))
answers = client.answers(questions(300))
assert next(answers).ok
"""


def test_an_interpreter_ends_although_answers_are_under_way(tmp_path: Path) -> None:
    with ScriptedServer(latency_ms=20) as server:
        command = [sys.executable, "-c", EXITING, server.url, str(tmp_path / "s.sqlite")]
        root = str(Path(__file__).parents[2])
        subprocess.run(command, cwd=root, check=True, timeout=60)


def test_a_batch_and_a_run_at_once_pay_for_each_question_once(tmp_path: Path) -> None:
    """The batch finds all of its questions asked, and takes what the run stores: it sends nothing."""
    store = tmp_path / "s.sqlite"
    with ScriptedServer(latency_ms=300) as server, ThreadPoolExecutor(1) as pool:
        run = pool.submit(ask, server, store, 4)
        while not server.requests():
            time.sleep(0.01)
        with open_client(Settings("batch", "m", server.url), store) as client:
            assert all(a.stored for a in client.answers(questions(4)))
        assert all(a.ok for a in run.result())
        assert set(server.asked().values()) == {1} and len(server.asked()) == 4


def test_a_store_by_another_name_has_the_same_claims(tmp_path: Path) -> None:
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "r.sqlite").symlink_to(tmp_path / "s.sqlite")
    with ScriptedServer(latency_ms=50) as server, ThreadPoolExecutor(2) as pool:
        paths = (tmp_path / "s.sqlite", tmp_path / "link" / "r.sqlite")
        ask(server, paths[0], 1)
        for run in [pool.submit(ask, server, path, 12) for path in paths]:
            assert len(run.result()) == 12
        assert set(server.asked().values()) == {1}


def test_runs_that_embed_the_same_texts_at_once_pay_once_and_share_the_work(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(640)]

    def embed(store: Path) -> list[list[float]]:
        with open_client(Settings("openai", "m", server.url), store) as client:
            return [list(map(float, v)) for v in client.embed(texts, model="e", prefix="")]

    with ScriptedServer(latency_ms=50) as server, ThreadPoolExecutor(3) as pool:
        got = list(pool.map(embed, [tmp_path / "s.sqlite"] * 3))
        paid = [text for r in server.requests() for text in r["body"]["input"]]
    assert got[0] == got[1] == got[2] and len(got[0]) == 640
    assert sorted(paid) == sorted(texts)


def test_the_texts_of_a_run_that_died_are_embedded_by_another(tmp_path: Path) -> None:
    ours = Claims(tmp_path / "s.sqlite")
    with (
        ScriptedServer() as server,
        open_client(Settings("openai", "m", server.url), tmp_path / "s.sqlite") as client,
    ):
        (key,) = keys_of(client, ["a text"], model="e", prefix="")
        assert ours.take([key], "the dying")
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(client.embed, ["a text"], model="e", prefix="")
            time.sleep(0.3)
            assert not waits.done() and not server.requests()
            ours.close()
            assert len(waits.result(timeout=20)) == 1


def test_of_those_who_wait_for_a_stalled_holder_one_asks_in_its_stead(tmp_path: Path) -> None:
    held, first, second, late = (Claims(tmp_path / "s.sqlite") for _ in range(4))
    key = KEYS[3]
    assert held.take([key], "held")
    stalled = {held.claimants.id: pulse(first, held)}
    assert not first.take([key], "first")
    assert first.take([key], "first", stalled)
    assert not second.take([key], "second", stalled), "the first asks it, and gets on"
    assert second.holders([key], stalled) == {first.claimants.id: 1}
    stalled |= {first.claimants.id: pulse(second, first)}
    assert second.take([key], "second", stalled)
    held.close()
    assert not late.take([key], "late"), "the stalled one is gone, and another asks in its stead"
    first.give([key], "first")
    assert not late.take([key], "late", stalled)
    second.give([key], "second")
    assert late.take([key], "late")
    for claims in (first, second, late):
        claims.close()
    assert list((tmp_path / "s.claimants").iterdir()) == []


def pulse(of: Claims, whose: Claims) -> int:
    seen = of.other(whose.claimants.id)
    assert seen is not None
    return seen.pulse


def test_one_that_was_stalled_and_goes_on_is_asked_for_nothing_that_it_takes_then(tmp_path: Path) -> None:
    held, other = Claims(tmp_path / "s.sqlite"), Claims(tmp_path / "s.sqlite")
    assert held.take(KEYS[:1], "held")
    stalled = {held.claimants.id: pulse(other, held)}
    assert other.take(KEYS[:1], "other", stalled)
    assert held.take(KEYS[1:3], "held")
    assert other.take(KEYS[1:], "other", stalled) == set(KEYS[3:])


def test_who_is_overlooked_finds_what_was_taken_in_its_stead_at_that_very_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both announce; the other reads before our pulse has changed, and asks; we read once more."""
    ours, other = Claims(tmp_path / "s.sqlite"), Claims(tmp_path / "s.sqlite")
    assert ours.take(KEYS[:1], "ours")
    stalled = {ours.claimants.id: pulse(other, ours)}
    beat = ours.claimants.beat

    def meanwhile() -> None:
        assert other.take(KEYS[1:2], "other", stalled)
        beat()

    monkeypatch.setattr(ours.claimants, "beat", meanwhile)
    assert ours.take(KEYS[1:2], "ours") == set()


def test_claims_whose_files_are_taken_away_or_cut_are_laid_anew(tmp_path: Path) -> None:
    ours, theirs = Claims(tmp_path / "s.sqlite"), Claims(tmp_path / "s.sqlite")
    folder = tmp_path / "s.claimants"
    for harm in ("removed", "moved", "cut"):
        assert ours.take(KEYS[:2], "a") == set(KEYS[:2])
        file = folder / ours.claimants.id
        if harm == "removed":
            shutil.rmtree(folder)
        elif harm == "moved":
            file.rename(tmp_path / "elsewhere")
            file.write_bytes(b"of another")
        else:
            os.truncate(file, 10)
        assert ours.take(KEYS[2:3], "a") == set(KEYS[2:3])
        assert theirs.take(KEYS, "b") == set(KEYS[3:]), harm
        ours.give_all("a")
        theirs.give_all("b")
    ours.close()
    assert not (folder / ours.claimants.id).exists()


def test_a_write_that_the_disk_takes_half_of_is_a_full_disk_and_nothing_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, write = Claims(tmp_path / "s.sqlite"), os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, raw, at: write(file, raw[: len(raw) // 2], at))
        with pytest.raises(EnvironmentFault, match="No space left"):
            claims.take(KEYS, "a")
    assert claims.take(KEYS, "a") == set(KEYS)


def test_after_the_end_nothing_is_taken(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "s.sqlite")
    claims.close()
    with pytest.raises(StageError, match="closed"):
        claims.take(KEYS, "a")
    assert not (tmp_path / "s.claimants").exists()


def test_what_is_no_file_among_the_claimants_stops_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "s.claimants"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(folder / "link")
    (folder / "folder").mkdir()
    claims = Claims(tmp_path / "s.sqlite")
    assert claims.take(KEYS, "a") == set(KEYS)
    assert not claims.holders(KEYS[:0])


FORKING = """
import os, sys, time
from pathlib import Path
from pipelines.llm.claims import Claims
claims = Claims(Path(sys.argv[1]))
assert claims.take(sys.argv[2:], "holder")
child = os.fork()
if not child:
    claims.give_all("holder")
    claims.close()
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_forked_child_has_no_part_in_its_parent_s_claims(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path / "s.sqlite"), *KEYS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        claims = Claims(tmp_path / "s.sqlite")
        assert claims.take(KEYS, "us") == set(), "what the child gives back is the parent's still"
        holder.kill()
        holder.wait()
        assert claims.take(KEYS, "us") == set(KEYS), "the child lives and holds nothing"
        os.kill(child, signal.SIGKILL)


def test_whose_file_is_left_by_a_kill_holds_nothing_and_is_taken_away(tmp_path: Path) -> None:
    left = Claims(tmp_path / "s.sqlite", "toy.make")
    assert left.take([KEYS[0]], "left")
    os.close(left.claimants._file)  # type: ignore[arg-type] - as the kernel does
    claims = Claims(tmp_path / "s.sqlite")
    assert claims.holders(KEYS) == {}
    assert claims.take([KEYS[0]], "us")
    assert [p.name for p in (tmp_path / "s.claimants").iterdir()] == [claims.claimants.id]
    claims.close()


class Watched:
    """A wait by a clock of our own for a claimant that holds `count` of KEYS."""

    def __init__(self, store: Path, count: int) -> None:
        self.now, self.said, self.holder = 100.0, list[str](), Claims(store, "toy.make")
        assert self.holder.take(KEYS[:count], "holder") == set(KEYS[:count])
        self.wait = Waiting(Claims(store), self.said.append, 50.0, clock=lambda: self.now)

    def beat(self) -> None:
        """One of its questions ends."""
        self.holder.beat()

    def after(self, seconds: float) -> list[str]:
        """What is said in so many seconds."""
        self.said.clear()
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.wait.look(KEYS)
        return list(self.said)


def test_who_waits_says_for_whom_after_a_moment_and_again_now_and_then(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "s.sqlite", 3)
    assert watched.after(3) == []
    (line,) = watched.after(3)
    assert line == f"waits for 3 answers that PID {os.getpid()} (toy.make, in {Path.cwd()}) asks"
    assert watched.after(40) == []


def test_a_holder_that_gets_on_is_waited_for_and_one_that_does_not_is_so_no_longer(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "s.sqlite", 3)
    for _ in range(4):
        watched.beat()
        watched.after(40)
        assert watched.wait.stalled == {}
    said = watched.after(15)
    assert set(watched.wait.stalled) == {watched.holder.claimants.id}
    assert (
        f"asks 3 questions itself: PID {os.getpid()} (toy.make, in {Path.cwd()}) holds them, and has"
        in said[0]
    )
    assert said[0].endswith("answered nothing for 50 s; what it asks all the same is paid for twice")
    other = Claims(tmp_path / "s.sqlite")
    assert other.take(KEYS[3:], "other")
    assert not watched.holder.take(KEYS[3:], "holder")
    watched.after(1)
    assert watched.wait.stalled, "that it wants more in vain is no sign of life"
    other.close()
    watched.beat()
    watched.after(1)
    assert watched.wait.stalled == {}


def test_who_was_idle_for_long_is_not_stalled_when_it_takes_a_question(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "s.sqlite", 1)
    watched.after(40)
    watched.holder.give_all("holder")
    watched.after(400)
    assert watched.holder.take(KEYS, "holder")
    assert watched.after(45) != [] and watched.wait.stalled == {}


STOPPED = """
import os, signal, sys
from pathlib import Path
from pipelines.llm.client import open_client
from pipelines.llm.settings import Settings
from tests.llm.test_claims import questions
told = Settings("openai", "m", sys.argv[1], concurrency=1)
with open_client(told, Path(sys.argv[2]), stage="toy.make") as client:
    answers = client.answers(questions(6))
    next(answers)
    print("asks", flush=True)
    list(answers)
"""


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[ScriptedServer, subprocess.Popen[str]]]:
    """A run that has asked two of six questions and got one answer, and was then stopped."""
    script = {"faults": [None, {"hang": True}]}
    with ScriptedServer(script) as server:
        command = [sys.executable, "-c", STOPPED, server.url, str(tmp_path / "s.sqlite")]
        root = str(Path(__file__).parents[2])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as run:
            assert run.stdout is not None and run.stdout.readline() == "asks\n"
            while len(server.requests()) < 2:
                time.sleep(0.02)
            run.send_signal(signal.SIGSTOP)
            yield server, run
            run.kill()


def test_a_run_that_waits_for_a_stopped_one_says_for_whom_and_how_to_go_on(
    stopped: tuple[ScriptedServer, subprocess.Popen[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server, run = stopped
    monkeypatch.setattr(waiting, "NOTICE_S", 0.2)
    said = list[str]()
    with open_client(Settings("openai", "m", server.url), tmp_path / "s.sqlite") as client:
        monkeypatch.setattr(client, "say", lambda text: (said.append(text), run.kill()))
        assert all(a.ok for a in client.answers(questions(6)))
    assert said[0] == (
        f"waits for 5 answers that PID {run.pid} (toy.make, in {Path(__file__).parents[2]}) asks; it is "
        f"stopped: `kill -CONT {run.pid}` lets it go on, `kill -9 {run.pid}` frees them"
    )


def test_a_run_that_gets_nowhere_for_long_is_waited_for_no_longer_and_that_is_told(
    stopped: tuple[ScriptedServer, subprocess.Popen[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, run = stopped
    told = Settings("openai", "m", server.url, stalled_s=1.0)
    with open_client(told, tmp_path / "s.sqlite", stage="toy.other") as client:
        assert all(a.ok for a in client.answers(questions(6)))
    (line,) = (x for x in capsys.readouterr().err.splitlines() if "asks 5 questions itself" in x)
    assert line.startswith(f"  toy.other: asks 5 questions itself: PID {run.pid} (toy.make, in ")
    assert sorted(server.asked().values()) == [1, 1, 1, 1, 1, 2], (
        "only what the stopped run had sent is twice"
    )


def test_what_is_in_flight_when_a_run_stops_is_asked_by_no_other_run(tmp_path: Path) -> None:
    slow = {"late_s": 1.5}
    with ScriptedServer({"faults": [*[slow] * 7, {"status": 401}]}) as server:
        told = Settings("openai", "m", server.url, concurrency=8, stream=True)
        with (
            open_client(told, tmp_path / "s.sqlite") as stopped,
            open_client(told, tmp_path / "s.sqlite") as other,
            ThreadPoolExecutor(1) as threads,
        ):
            first = threads.submit(lambda: list(stopped.answers(questions(8))))
            while len(server.requests()) < 8:
                time.sleep(0.02)
            time.sleep(0.3)  # it has been told to stop
            assert all(a.ok for a in other.answers(questions(8)))
            assert isinstance(first.exception(), KeyRefused)
        assert sorted(server.asked().values()) == [1] * 7 + [2]


def test_a_run_whose_answers_come_slowly_is_not_taken_for_stalled(tmp_path: Path) -> None:
    with ScriptedServer(latency_ms=2500) as server:
        told = Settings("openai", "m", server.url, stalled_s=0.6)
        with (
            open_client(told, tmp_path / "s.sqlite") as slow,
            open_client(told, tmp_path / "s.sqlite") as other,
            ThreadPoolExecutor(1) as threads,
        ):
            first = threads.submit(lambda: list(slow.answers(questions(3))))
            while len(server.requests()) < 3:
                time.sleep(0.02)
            answers = list(other.answers(questions(3)))
            assert all(a.ok for a in [*answers, *first.result()])
        assert sorted(server.asked().values()) == [1, 1, 1]


def test_vectors_of_a_run_that_gets_nowhere_are_made_by_who_waited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, store = Claims(tmp_path / "s.sqlite"), tmp_path / "s.sqlite"
    with (
        ScriptedServer() as server,
        open_client(Settings("openai", "m", server.url, stalled_s=0.5), store) as client,
    ):
        (key,) = keys_of(client, ["a text"], model="e", prefix="")
        assert ours.take([key], "the hung")
        assert len(client.embed(["a text"], model="e", prefix="")) == 1
    assert f"headrace: asks 1 questions itself: PID {os.getpid()}" in capsys.readouterr().err
    ours.close()
