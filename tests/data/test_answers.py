"""Answers of mathematics are found where they are marked, and compared by value, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.answers import Verdict, Verifier, canonical, extract, fast
from pipelines.data.plain_numbers import number

HANGS = "9^{9^{9^9}}"


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier() as v:
        yield v


@pytest.mark.parametrize(
    ("text", "language", "answer"),
    [
        (r"so \boxed{8}", "en", "8"),
        (r"\boxed{1} no, \boxed{\frac{1}{2}}", "en", "0.5"),
        (r"\boxed{\sqrt{2}}", "en", r"\sqrt{2}"),
        (r"The answer is 5. \boxed{", "en", None),
        ("3 * 6 = 18\n#### 18", "en", "18"),
        ("#### 1,450,000", "en", "1450000"),
        ("#### -7", "en", "-7"),
        ("She sells 18\nA: 18", "en", "18"),
        ("5 + 3 = 8. The answer is 8.", "en", "8"),
        ("The answer is 7. Wait. The answer is 8.", "en", "8"),
        ("The answer is 5 + 3 = 8 apples.", "en", "8"),
        ("The answer is 3.5.", "en", "3.5"),
        ("The final answer is **$1,234**.", "en", "1234"),
        ("The answer is 12 cookies, 3 each.", "en", "12"),
        ("The answer is 2x+1.", "en", "2x+1"),
        ("The answer is 5 pi.", "en", "5 pi"),
        ("The answer is 2 and 3.", "en", "2 and 3"),
        ("The answer is (1, 2).", "en", "(1, 2)"),
        ("The answer is not clear.", "en", None),
        ("5 + 3 = 8. La réponse est 8.", "fr", "8"),
        ("La réponse est donc 80\u202f000.", "fr", "80000"),
        ("La réponse est 3,5.", "fr", "3.5"),
        ("A resposta é 80.000.", "pt", "80000"),
        ("La respuesta es 1.234 manzanas.", "es", "1234"),
        ("Die Antwort ist 3,5.", "de", "3.5"),
        ("答えは8個です。", "ja", "8"),
        ("答えは８です。", "ja", "8"),
        ("답은 8입니다.", "ko", "8"),
        ("คำตอบคือ 8 บาท", "th", "8"),
        ("คำตอบคือ ๘", "th", "8"),
        ("答案是 8。", "zh", "8"),
        ("I counted 5 and then 6", "en", None),
        ("", "en", None),
    ],
)
def test_the_marked_answer_is_found_and_nothing_else(text: str, language: str, answer: str | None) -> None:
    assert extract(text, language=language) == answer


def test_a_required_box_is_the_only_mark() -> None:
    assert extract("The answer is 8.", require_box=True) is None
    assert extract(r"The answer is 8. \boxed{9}", require_box=True) == "9"


def test_the_last_number_is_taken_only_when_asked() -> None:
    assert extract("It makes 5 and then 6,000 in all") is None
    assert extract("It makes 5 and then 6,000 in all", last_number=True) == "6000"


@pytest.mark.parametrize(
    ("given_answer", "gold", "verdict"),
    [
        ("20{,}000", "20,000", "right"),
        ("20000", "20{,}000", "right"),
        ("8.0", "8", "right"),
        ("$4049$", "4049", "right"),
        ("2500,7500", "7500,2500", "right"),
        ("2500,7500", "25007500", "wrong"),
        (r"(2,12) \cup (12,102)", r"(2,12) \cup (12,102)", "right"),
        (r"(12,102) \cup (2,12)", r"(2,12) \cup (12,102)", "right"),
        ("[2,12)", "(2,12)", "wrong"),
        ("(1,2)", "(2,1)", "wrong"),
        ("x=5", "5", "right"),
        (r"6\,000\,000", "6000000", "right"),
        (r"6\,000\,000", "0", "wrong"),
        (r"\$32,\!348", "32348", "right"),
        ("252", "C(10, 5), or equivalently 252", "right"),
        ("251", "C(10, 5), or equivalently 252", "wrong"),
        ("35.7%", "5/14, or approximately 35.7%", "right"),
        ("100", "100 (i.e., all values)", "right"),
        ("yes", "No", "wrong"),
        ("no.", "No", "right"),
        ("3", "No", "wrong"),
        ("5 apples", "5", "right"),
        ("5 pi", "5", "wrong"),
        ("$18", "18", "right"),
        ("five", "5", "right"),
        ("many apples", "5", "wrong"),
        ("١٢", "12", "right"),
        ("১২", "12", "right"),
        ("１２", "12", "right"),
        ("3 million", "3000000", "right"),
        ("50%", "50", "right"),
        ("50%", "1/2", "right"),
        ("2/4", "0.5", "right"),
        ("0.333", "1/3", "wrong"),
        (r"\binom{10}{5}", "C(10, 5), or equivalently 252", "right"),
        ("n*(n+1)*2^(n-2)", "n(n+1)*2^(n-2)", "right"),
        ("n(n+2)*2^(n-2)", "n(n+1)*2^(n-2)", "wrong"),
        (r"\frac{\sqrt{2}}{2}", r"1/\sqrt{2}", "right"),
        ("[1,2] \\cup [2,3]", "[1,3]", "right"),
        ("", "5", "wrong"),
        ("5", "", "unverified"),
        ("the largest prime", "a prime number", "unverified"),
    ],
)
def test_answers_are_compared_by_value(
    verifier: Verifier, given_answer: str, gold: str, verdict: str
) -> None:
    assert verifier.compare(given_answer, gold) == verdict


def test_a_language_says_what_its_marks_mean(verifier: Verifier) -> None:
    assert verifier.compare("80.000", "80000", language="pt") is Verdict.RIGHT
    assert verifier.compare("80.000", "80000", language="en") is Verdict.WRONG
    assert verifier.compare("3,5", "3.5", language="fr") is Verdict.RIGHT


def test_consensus_keeps_35_and_35_0_and_drops_36() -> None:
    assert len({canonical(a) for a in ("35", "35", "35.0")}) == 1
    assert len({canonical(a) for a in ("35", "35", "36")}) == 2


def test_canonical_is_stable_and_spells_values_once() -> None:
    for answer, spelling in [
        ("$8.0$", "8"),
        ("{7500, 2500}", "{2500, 7500}"),
        (r"\frac{2}{6}", "1/3"),
        ("-0.250", "-0.25"),
        ("True", "yes"),
        (r"(2,12) \cup (-\infty,1]", r"(-oo, 1] \cup (2, 12)"),
    ]:
        assert canonical(answer) == spelling
        assert canonical(spelling) == spelling


def test_plain_answers_need_no_worker() -> None:
    with Verifier() as v:
        assert v.compare("1,000", "1000") is Verdict.RIGHT
        assert v.compare("1", "2500,7500") is Verdict.WRONG
        assert v.started == 0


def test_one_worker_serves_many_comparisons() -> None:
    with Verifier() as v:
        for k in range(2, 8):
            assert v.compare(f"2^{{{k}}}", str(2**k)) is Verdict.RIGHT
        assert v.started == 1


def test_a_hanging_comparison_is_unverified_and_the_next_one_works() -> None:
    with Verifier(cpu_s=1.0) as v:
        assert v.compare(HANGS, "5") is Verdict.UNVERIFIED
        assert v.compare("2^{10}", "1024") is Verdict.RIGHT
        assert v.started == 2


def test_a_sleeping_worker_is_killed_by_the_clock() -> None:
    with Verifier() as v:
        assert v.compare("2^{10}", "1024") is Verdict.RIGHT
        assert v._worker is not None
        os.kill(v._worker.pid, signal.SIGSTOP)
        v.wall_s = 0.5
        assert v.compare("2^{11}", "2048") is Verdict.UNVERIFIED
        v.wall_s = 60.0
        assert v.compare("2^{11}", "2048") is Verdict.RIGHT


def test_a_worker_killed_from_outside_costs_its_own_item_only() -> None:
    with Verifier() as v:
        assert v.compare("2^{10}", "1024") is Verdict.RIGHT
        assert v._worker is not None
        v._worker.kill()
        v._worker.wait()
        assert v.compare("2^{11}", "2048") is Verdict.UNVERIFIED
        assert v.compare("2^{11}", "2048") is Verdict.RIGHT


def test_the_worker_ends_when_its_parent_is_killed() -> None:
    program = (
        "import os, signal\n"
        "from pipelines.data.answers import Verifier\n"
        "v = Verifier(); v.compare('2^{3}', '8')\n"
        "print(v._worker.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    for _ in range(100):
        if not _runs(int(done.stdout)):
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_an_overlong_answer_is_unverified_without_work() -> None:
    with Verifier() as v:
        assert v.compare("1+" * 10_000, "5") is Verdict.UNVERIFIED
        assert v.started == 0


SPELLINGS = [
    str,
    lambda n: f"{n:,}",
    lambda n: f"{n:,}".replace(",", "{,}"),
    lambda n: f"{n:,}".replace(",", r"\,"),
    lambda n: f"{n:,}".replace(",", r",\!"),
    lambda n: f"{n:,}".replace(",", "\u202f"),
    lambda n: f"{n:,}".replace(",", " "),
    lambda n: f"{n}.0",
    lambda n: f"{n:,}.00",
    lambda n: f"${n}$",
    lambda n: f"\\boxed{{{n}}}",
    lambda n: f"\\text{{{n}}}",
    lambda n: f"x = {n}",
    lambda n: f"{n}.",
    lambda n: f"{n} apples",
    lambda n: f"{2 * n}/2",
    lambda n: f"\\frac{{{3 * n}}}{{3}}",
    lambda n: str(n).translate({ord(str(d)): chr(0x0660 + d) for d in range(10)}),
    lambda n: str(n).translate({ord(str(d)): chr(0x09E6 + d) for d in range(10)}),
    lambda n: str(n).translate({ord(str(d)): chr(0xFF10 + d) for d in range(10)}),
    lambda n: str(n).replace("-", "−"),
]


@given(st.integers(-(10**12), 10**12), st.sampled_from(SPELLINGS), st.integers(1, 10**6))
def test_an_integer_in_any_spelling_is_itself_and_no_other(n: int, spelling: object, off: int) -> None:
    text = spelling(n)  # type: ignore[operator]
    assert fast(text, str(n)) is Verdict.RIGHT
    assert fast(text, str(n + off)) is Verdict.WRONG
    assert fast(text, str(n - off)) is Verdict.WRONG
    assert canonical(text) == str(n)


@given(st.integers(0, 10**9), st.sampled_from(["fr", "pt", "es", "de"]))
def test_a_grouped_integer_reads_the_same_in_its_own_language(n: int, language: str) -> None:
    assert number(f"{n:,}".replace(",", "."), language) == n
    assert number(f"{n:,}".replace(",", "\u202f"), language) == n


@given(st.integers(-(10**6), 10**6), st.sampled_from(["The answer is {}.", r"\boxed{{{}}}", "#### {}"]))
def test_an_integer_that_is_marked_is_extracted(n: int, form: str) -> None:
    assert extract("Some 3 words.\n" + form.format(n)) == str(n)
    assert extract("Some 3 words.\n" + form.format(f"{n:,}")) == str(n)


@given(st.text(max_size=80))
def test_no_text_breaks_extraction_or_comparison(text: str) -> None:
    answer = extract(text, last_number=True)
    assert answer is None or answer.strip()
    assert fast(text, "5") in (Verdict.RIGHT, Verdict.WRONG, Verdict.UNVERIFIED, None)
    canonical(text)
