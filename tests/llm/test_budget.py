"""No cap is exceeded, whatever interleaves, waits or dies; what was spent adds up."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm.answer import Failure, Usage
from pipelines.llm.budget import Budget
from pipelines.llm.caps import Cap, Caps
from pipelines.llm.job import Job
from pipelines.llm.prices import NANO, Amount, Price, charge, likely_prompt_tokens, most
from pipelines.llm.request import Request, Sampling, named_request
from pipelines.llm.spending import Spending, ledger_path, month_of, read_sums
from pipelines.llm.store import Kept
from pipelines.llm.wishes import Holding, Limit, Word, decide, left_by

PRICE = Price(prompt=1.0, completion=3.0, cached=0.25)
MAY = datetime(2031, 5, 31, 23, 59, tzinfo=UTC)


def job(number: int, max_tokens: int = 16) -> Job:
    request = Request(
        "completion", "m", Sampling(max_tokens), prompt="x" * 10, sample=number, row=str(number)
    )
    named = named_request(request, "m", "name:m")
    return Job(named.key, named.canonical, "name:m", "m", request, SimpleQueue())


def bound(one: Job) -> Amount:
    return charge(PRICE, most(one.request, one.canonical))


def budget(path: Path, clock: Any = lambda: MAY, stage: str = "s", **caps: Cap) -> Budget:
    return Budget({"m": PRICE}, Caps(**caps), path, stage, clock=clock)


def settle(spender: Budget, one: Job, kept: Kept) -> None:
    spender.settle(one.key, one.done, kept)


def fails(spender: Budget, one: Job, failure: Failure, *, left: bool = True) -> str:
    """An attempt that ends so: the cap in the way of the next, if it has to be paid for."""
    spender.sent(one)
    spender.ended(one, Kept("", failure=failure), left=left)
    return spender.retry(one) if spender.lost(one) else ""


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_RUN_ID", "run1")


# -- prices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "nano"),
    [
        (Usage(1_000_000, 0), 1 * NANO),
        (Usage(0, 1_000_000), 3 * NANO),
        (Usage(1_000_000, 0, cached_tokens=1_000_000), NANO // 4),
        (Usage(1_000_000, 1_000_000, cached_tokens=500_000), 3 * NANO + NANO // 2 + NANO // 8),
        (Usage(10, 10, 0.5, billed=True), NANO // 2),
        (Usage(10, 10, 0.0, billed=True), 0),
        (Usage(1, 0), 1000),
        (Usage(5, 0, cached_tokens=900), 1250),
    ],
)
def test_an_answer_costs_what_the_seller_bills_else_what_the_table_says(usage: Usage, nano: int) -> None:
    assert charge(PRICE, usage).nano == nano


def test_cached_tokens_cost_as_others_where_no_price_is_told() -> None:
    assert charge(Price(1.0, 3.0), Usage(1000, 0, cached_tokens=1000)).nano == 1_000_000


@given(st.text(max_size=80), st.integers(1, 500), st.integers(0, 1), st.integers(0, 500))
def test_the_bound_is_never_under_what_a_byte_tokenizer_can_bill(
    prompt: str, most_tokens: int, cached: int, drawn: int
) -> None:
    prompt = prompt.encode("utf-8", "replace").decode()
    request = Request("completion", "m", Sampling(most_tokens), prompt=prompt)
    limit = most(request, named_request(request, "m", "name:m").canonical)
    billed = Usage(len(prompt.encode()) + 32, min(drawn, most_tokens), cached_tokens=cached * len(prompt))
    assert charge(PRICE, billed).nano <= charge(PRICE, limit).nano
    assert likely_prompt_tokens(request) <= limit.prompt_tokens


# -- one holder ----------------------------------------------------------------------------------


def test_without_prices_and_caps_there_is_no_ledger(tmp_path: Path) -> None:
    free = Budget({}, Caps(), tmp_path / "l.sqlite")
    within, over = free.reserve([job(1)])
    free.settle(within[0].key, within[0].done, Kept("x", usage=Usage(5, 5)))
    free.close()
    assert over == [] and list(tmp_path.iterdir()) == []


def test_a_question_that_cannot_fit_is_over_and_names_the_cap(tmp_path: Path) -> None:
    one, spender = job(1), budget(tmp_path / "l.sqlite", run=Cap(tokens=10))
    reached = "llm.caps.run.tokens of 10 is reached: 0 are spent or held"
    assert spender.reserve([one]) == ([], [(one, reached)])
    spender.close()


def test_what_would_fit_if_another_came_out_cheaper_waits_for_it(tmp_path: Path) -> None:
    first, second = job(1), job(2)
    cap = (bound(first).nano * 3 // 2) / NANO
    spender = budget(tmp_path / "l.sqlite", run=Cap(usd=cap))
    assert spender.reserve([first, second]) == ([first], []) and spender.waiting
    assert spender.again() == ([], [])
    settle(spender, first, Kept("x", usage=Usage(10, 1)))
    assert spender.again() == ([second], []) and not spender.waiting
    settle(spender, second, Kept("x", usage=Usage(10, 1)))
    spender.close()
    spent, held = Spending(tmp_path / "l.sqlite").sums(("run", "run1"))
    assert (spent, held) == (Amount(2 * 13_000, 22), Amount())


def test_the_dearest_answers_leave_the_waiting_one_over_budget(tmp_path: Path) -> None:
    first, second = job(1), job(2)
    spender = budget(tmp_path / "l.sqlite", month=Cap(usd=bound(first).nano * 3 // 2 / NANO))
    spender.reserve([first, second])
    limit = most(first.request, first.canonical)
    settle(spender, first, Kept("x", usage=limit))
    within, over = spender.again()
    assert within == [] and over[0][0] is second and over[0][1].startswith("llm.caps.month.usd")


def test_a_cap_in_usd_over_a_model_without_a_price_stops_before_anything_is_sent(tmp_path: Path) -> None:
    spender = Budget({"other": PRICE}, Caps(run=Cap(usd=1.0)), tmp_path / "l.sqlite")
    with pytest.raises(ConfigError, match="model 'm' has no price") as told:
        spender.reserve([job(1)])
    assert "m: {prompt: ..., completion: ...}" in str(told.value)
    ours = Budget({}, Caps(run=Cap(usd=1.0)), tmp_path / "l.sqlite", ours=True)
    assert len(ours.reserve([job(1)])[0]) == 1
    tokens = Budget({}, Caps(run=Cap(tokens=10_000)), tmp_path / "l.sqlite")
    assert len(tokens.reserve([job(1)])[0]) == 1


@pytest.mark.parametrize(
    ("kept", "left", "in_full"),
    [
        (Kept("", failure=Failure.TIMEOUT), True, True),
        (Kept("", failure=Failure.BROKEN_BODY), True, True),
        (Kept("", failure=Failure.NETWORK), True, True),
        (Kept("", failure=Failure.NETWORK), False, False),
        (Kept("a text without usage"), True, True),
        (Kept("cut", failure=Failure.LENGTH), True, True),
        (Kept("", failure=Failure.SERVER), True, False),
        (Kept("", failure=Failure.OVERLOADED), True, False),
        (Kept("", failure=Failure.BAD_REQUEST), True, False),
    ],
)
@pytest.mark.parametrize("caps", [{"run": Cap(usd=1.0)}, {}])
def test_where_no_bill_is_known_the_whole_bound_is_paid(
    tmp_path: Path, kept: Kept, left: bool, in_full: bool, caps: dict
) -> None:
    one, spender = job(1), budget(tmp_path / "l.sqlite", **caps)
    spender.reserve([one])
    spender.sent(one)
    spender.ended(one, kept, left=left)
    settle(spender, one, kept)
    spender.close()
    spent, held = Spending(tmp_path / "l.sqlite").sums(("run", "run1"))
    assert (spent, held) == (bound(one) if in_full else Amount(), Amount())


def test_a_lost_attempt_is_paid_for_before_the_next_leaves(tmp_path: Path) -> None:
    one = job(1)
    cap = bound(one).nano * 5 // 2 / NANO
    spender = budget(tmp_path / "l.sqlite", run=Cap(usd=cap))
    spender.reserve([one])
    told = [fails(spender, one, f) for f in (Failure.SERVER, Failure.TIMEOUT, Failure.OVERLOADED)]
    assert told == ["", "", ""]
    assert fails(spender, one, Failure.NETWORK, left=False) == ""
    taken = f"{2 * bound(one).nano / NANO:,.4f} are spent or held"
    assert fails(spender, one, Failure.TIMEOUT) == f"llm.caps.run.usd of {cap:g} is reached: {taken}"
    settle(spender, one, Kept("", failure=Failure.OVER_BUDGET))
    spender.close()
    assert Spending(tmp_path / "l.sqlite").sums(("run", "run1")) == (bound(one) + bound(one), Amount())


def test_what_never_left_is_given_back_and_what_may_have_is_spent(tmp_path: Path) -> None:
    one, two, three, four = map(job, range(4))
    spender = budget(tmp_path / "l.sqlite", run=Cap(usd=1.0))
    spender.reserve([one, two, three, four])
    for left in (one, three):
        spender.sent(left)
    spender.recall(one.done)
    spender.recall(two.done)
    spender.close()
    assert Spending(tmp_path / "l.sqlite").sums(("run", "run1")) == (bound(one) + bound(three), Amount())


def test_each_cap_counts_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, days = tmp_path / "l.sqlite", [MAY, datetime(2031, 6, 1, tzinfo=UTC)]
    for run, stage, day in (("a", "x", 0), ("a", "y", 0), ("b", "x", 1)):
        monkeypatch.setenv("HEADRACE_RUN_ID", run)
        spender = budget(path, lambda day=day: days[day], stage, run=Cap(usd=1.0))
        one = job(1)
        spender.reserve([one])
        settle(spender, one, Kept("x", usage=Usage(1000, 0)))
        spender.close()
    ledger = Spending(path)
    places = [
        ("stage", "a x"),
        ("stage", "b x"),
        ("run", "a"),
        ("run", "b"),
        ("month", "2031-05"),
        ("month", "2031-06"),
    ]
    assert [ledger.sums(p)[0].tokens for p in places] == [1000, 1000, 2000, 1000, 2000, 1000]


def test_a_ledger_of_a_newer_version_or_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    Spending(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(EnvironmentFault, match="version 99"):
        Spending(path)
    with sqlite3.connect(tmp_path / "other") as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(EnvironmentFault, match="no ledger"):
        Spending(tmp_path / "other")
    (tmp_path / "text").write_text("not a database at all, but long enough to look at " * 20)
    with pytest.raises(EnvironmentFault, match="cannot be used"):
        Spending(tmp_path / "text")


def test_sums_are_read_without_a_write_and_there_are_none_without_a_ledger(tmp_path: Path) -> None:
    path, one, two = tmp_path / "l.sqlite", job(1), job(2)
    assert read_sums(path, month_of(MAY)) is None and list(tmp_path.iterdir()) == []
    spender = budget(path, run=Cap(usd=1.0))
    spender.reserve([one, two])
    assert read_sums(path, month_of(MAY)) == (Amount(), bound(one) + bound(two))
    spender.sent(one)
    spender.close()
    before = path.read_bytes()
    assert read_sums(path, month_of(MAY)) == (bound(one), Amount())
    assert path.read_bytes() == before
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(EnvironmentFault, match="version 99"):
        read_sums(path, month_of(MAY))


def test_the_ledger_lies_beside_the_store() -> None:
    assert ledger_path(Path("a/responses.sqlite")) == Path("a/responses.spending.sqlite")


# -- many holders --------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12),
    st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 60), st.integers(0, 60)),
)
def test_none_passes_one_that_waits_and_what_is_let_go_fits(wishes: Any, given_: Any) -> None:
    usd, tokens, spent, held = given_
    place = ("run", "r")
    limits = [Limit(place, usd / NANO, tokens)]
    amounts = [Amount(*w) for w in wishes]
    verdicts = decide(limits, {place: Amount(spent, 0)}, {place: Amount(held, 0)}, amounts)
    let = [a for a, v in zip(amounts, verdicts, strict=True) if v.word is Word.WITHIN]
    total = sum(let, Amount(spent + held, 0))
    assert not let or (total.nano <= int(usd / NANO * NANO) and total.tokens <= tokens)
    words = [v.word for v in verdicts if v.word is not Word.OVER]
    assert words == sorted(words, key=[Word.WITHIN, Word.LATER].index)


def dead(one: Budget) -> None:
    """As the kernel leaves a killed holder: unlocked, nothing said."""
    ledger = one._ledger
    assert ledger is not None and ledger._file is not None
    os.close(ledger._file)
    ledger._db.close()


def test_what_a_killed_client_held_is_settled_by_the_store_and_by_what_was_in_flight(tmp_path: Path) -> None:
    path, cap = tmp_path / "l.sqlite", Cap(usd=1.0)
    jobs = [job(n, max_tokens=10 * (n + 1)) for n in range(8)]
    answered = {one.key: Kept("x", usage=Usage(20, 5, 35_000 / NANO)) for one in jobs[:3]}
    killed = budget(path, run=cap)
    killed.in_flight = 2
    assert len(killed.reserve(jobs)[0]) == 8
    settle(killed, jobs[0], answered[jobs[0].key])  # paid, and not yet written
    dead(killed)
    later = budget(path, run=cap)
    later.stored = lambda keys: {k: answered[k] for k in keys if k in answered}
    fresh = job(99)
    later.reserve([fresh])
    expected = Amount(3 * 35_000, 75) + bound(jobs[6]) + bound(jobs[7])  # the dearest that can have left
    assert Spending(path).sums(("run", "run1")) == (expected, bound(fresh))
    later.close()


def test_a_holder_of_an_older_ledger_that_died_is_spent_in_full(tmp_path: Path) -> None:
    path, one, other = tmp_path / "l.sqlite", job(1), job(2)
    killed = budget(path, run=Cap(usd=1.0))
    killed.reserve([one])
    dead(killed)
    with sqlite(path) as db:  # as version 1 wrote it
        db.executescript(
            "DROP TABLE questions; ALTER TABLE holders DROP COLUMN in_flight; PRAGMA user_version = 1"
        )
    later = budget(path, run=Cap(usd=1.0))
    later.reserve([other])
    assert Spending(path).sums(("run", "run1")) == (bound(one), bound(other))
    later.close()


HOLDINGS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.booleans()), max_size=9)


@given(HOLDINGS, st.none() | st.integers(0, 9))
def test_of_the_dead_nothing_is_spent_that_cannot_have_been_billed_and_nothing_that_may_is_given_back(
    told: list[tuple[int, int, bool]], in_flight: int | None
) -> None:
    holdings = [Holding(str(n), (("run", "r"),), Amount(nano, t)) for n, (nano, t, _) in enumerate(told)]
    stored = {str(n): Amount(1, 1) for n, (*_, is_stored) in enumerate(told) if is_stored}
    ends = list(left_by(holdings, stored, in_flight))
    assert [h for h, _ in ends] == holdings
    open_ = sorted((h.amount.nano for h in holdings if h.key not in stored), reverse=True)
    spent = sum(came_to.nano for h, came_to in ends if h.key not in stored)
    assert spent == sum(open_[:in_flight])  # as much as so many can have cost at most
    assert all(came_to == Amount(1, 1) for h, came_to in ends if h.key in stored)


class Spenders(RuleBasedStateMachine):
    """Holders over one ledger that hold, pay, give back and die, beside a plain account of it all."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "l.sqlite"
        self.number = 0
        self.spent = Amount()  # as it was billed or, where that is unknown, in full
        self.orphaned = Amount()  # held by the dead, or paid by them and not yet written
        self.live: list[Budget] = []
        self.out: dict[int, list[Job]] = {}
        self.unwritten: dict[int, list[tuple[Amount, Amount]]] = {}

    @initialize(cap=st.integers(0, 12), tokens=st.none() | st.integers(0, 4000))
    def caps(self, cap: int, tokens: int | None) -> None:
        self.cap = Cap(usd=bound(job(0)).nano * cap / 2 / NANO, tokens=tokens)
        self.born()

    @precondition(lambda self: len(self.live) < 4)
    @rule()
    def born(self) -> None:
        one = budget(self.path, run=self.cap)
        self.live.append(one)
        self.out[id(one)], self.unwritten[id(one)] = [], []

    def chosen(self, data: st.DataObject) -> Budget:
        return data.draw(st.sampled_from(self.live))

    def written(self, one: Budget) -> None:
        for _, came_to in self.unwritten[id(one)]:
            self.spent += came_to
        self.unwritten[id(one)] = []

    @rule(data=st.data(), count=st.integers(1, 4), tokens=st.integers(1, 40))
    def reserve(self, data: st.DataObject, count: int, tokens: int) -> None:
        one = self.chosen(data)
        jobs = [job(self.number + n, tokens) for n in range(count)]
        self.number += count
        within, _ = one.reserve(jobs)
        self.written(one)
        self.out[id(one)] += within

    @rule(data=st.data(), share=st.floats(0, 1), write=st.booleans())
    def settle(self, data: st.DataObject, share: float, write: bool) -> None:
        one = self.chosen(data)
        if not self.out[id(one)]:
            return
        job_ = self.out[id(one)].pop(data.draw(st.integers(0, len(self.out[id(one)]) - 1)))
        limit = most(job_.request, job_.canonical)
        usage = Usage(1 + int(share * (limit.prompt_tokens - 1)), int(share * limit.completion_tokens))
        settle(one, job_, Kept("x", usage=usage))
        self.unwritten[id(one)].append((bound(job_), charge(PRICE, usage)))
        if write:
            one.flush()
            self.written(one)

    @rule(data=st.data(), sent=st.booleans())
    def release(self, data: st.DataObject, sent: bool) -> None:
        one = self.chosen(data)
        if not self.out[id(one)]:
            return
        job_ = self.out[id(one)].pop()
        if sent:
            one.sent(job_)
        one.recall(job_.done)
        self.unwritten[id(one)].append((bound(job_), bound(job_) if sent else Amount()))

    @precondition(lambda self: len(self.live) > 1 and any(self.out[id(b)] for b in self.live))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        one = self.chosen(data)
        self.live.remove(one)
        for held in [bound(j) for j in self.out[id(one)]] + [h for h, _ in self.unwritten[id(one)]]:
            self.orphaned += held
        ledger = one._ledger
        if ledger is not None:  # as the kernel leaves it: unlocked, nothing said
            if ledger._file is not None:
                os.close(ledger._file)
            ledger._db.close()

    @invariant()
    def never_over_the_cap(self) -> None:
        if not hasattr(self, "cap") or not self.path.exists():
            return
        with sqlite(self.path) as db:
            spent, held = total(db, "spent"), total(db, "held")
        alive = [bound(j) for jobs in (self.out[id(b)] for b in self.live) for j in jobs]
        alive += [h for b in self.live for h, _ in self.unwritten[id(b)]]
        assert spent + held == sum(alive, self.spent + self.orphaned)
        assert Limit(("run", "run1"), self.cap.usd, self.cap.tokens).over(spent + held) == ""

    def teardown(self) -> None:
        for one in self.live:
            one.close()
        self.folder.cleanup()


def sqlite(path: Path) -> Any:
    import contextlib
    import sqlite3

    return contextlib.closing(sqlite3.connect(path))


def total(db: Any, table: str) -> Amount:
    row = db.execute(f"SELECT sum(nano), sum(tokens) FROM {table} WHERE scope = 'run'").fetchone()
    return Amount(row[0] or 0, row[1] or 0)


TestSpenders = Spenders.TestCase
TestSpenders.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


SPENDER = """
import random, sys, time
from pathlib import Path
sys.path[:0] = [{tests!r}]
from test_budget import Cap, Kept, Usage, budget, job, settle
path, seed, cap = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
draw, log = random.Random(seed), open(sys.argv[1] + f".{{seed}}.log", "a", buffering=1)
one = budget(path, run=Cap(usd=cap))
print("up", flush=True)
number = seed * 1_000_000
while True:
    jobs = [job(number + n, 50) for n in range(draw.randint(1, 8))]
    number += len(jobs)
    within, over = one.reserve(jobs)
    for each in within:
        one.sent(each)
    log.write("sent\\n" * len(within))
    time.sleep(draw.random() / 200)
    for each in within:
        settle(one, each, Kept("x", usage=Usage(20, drawn := draw.randint(0, 50))))
        log.write(f"{{20 + 3 * drawn}}\\n")
    if over:
        break
one.close()
print("over", flush=True)
"""


@pytest.mark.slow
def test_killed_processes_leave_the_cap_whole_and_their_holdings_spent(tmp_path: Path) -> None:
    path, draw = tmp_path / "l.sqlite", random.Random(3)
    each = bound(job(0, 50)).nano
    cap = each * 1000 / NANO
    script = SPENDER.format(tests=str(Path(__file__).parent))
    command = [sys.executable, "-c", script, str(path)]
    running = [spender(command, seed, cap) for seed in range(3)]
    for seed in range(3, 7):
        victim = running.pop(draw.randrange(len(running)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        running.append(spender(command, seed, cap))
        with sqlite(path) as db:
            assert (total(db, "spent") + total(db, "held")).nano <= int(cap * NANO)
    for process in running:
        assert process.wait(60) == 0
    with sqlite(path) as db:
        spent, held = total(db, "spent"), total(db, "held")
    lines = [line for log in tmp_path.glob("*.log") for line in log.read_text().split()]
    billed = [int(line) * 1000 for line in lines if line != "sent"]
    unsettled = len(lines) - 2 * len(billed)
    assert (spent + held).nano <= int(cap * NANO)
    assert int(cap * NANO) - spent.nano < bound(job(9_999_999, 50)).nano  # nothing more fits
    assert spent.nano >= sum(billed) + unsettled * each and held == Amount()


def spender(command: list[str], seed: int, cap: float) -> subprocess.Popen[str]:
    process = subprocess.Popen([*command, str(seed), str(cap)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    return process
