"""Damaged rows, thousands a reader: nothing ends in a traceback, and no other row is touched.

Each reader reads small slices of its own format; one row at a time is damaged in
bytes and in values. What was accepted of the other rows must be accepted again, unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from mutations import Case, array, attack, lay, lines, read, table

COUNT = int(os.environ.get("HEADRACE_MUTATIONS", "2000"))  # of each reader; 20,000 were done once
NAMES = ("Ada", "Bo; or Al", "Cy \u061b Di", 'the "Eel"')


def cells(*told: str) -> bytes:
    return ",".join(
        f'"{t.replace(chr(34), chr(34) * 2)}"' if {",", '"', "\n"} & {*t} else t for t in told
    ).encode()


def dumped(*records: object) -> list[bytes]:
    return [json.dumps(r, ensure_ascii=n % 2 == 0).encode() for n, r in enumerate(records)]


def keyed(path: Path, rows: Sequence[bytes]) -> None:
    path.write_bytes(b"{" + b", ".join(rows) + b"}")


def squad(path: Path, rows: Sequence[bytes]) -> None:
    head, foot = (
        b'{"data": [{"title": "T", "paragraphs": [{"context": "c", "qas": [',
        b']}]}], "version": "1"}',
    )
    path.write_bytes(head + b", ".join(rows) + foot)


WIDE = [cells(str(n), str(n % 2), f"Is {x}, here?", f"Wo ist {x}?\n{n}") for n, x in enumerate(NAMES)]
WIDE_HEAD = b",is_evergreen,English,German\n"
ALIASES = [cells(str(n), f"['{n}', \"a'b\"]", f"['{x}']".replace('"', "'")) for n, x in enumerate(NAMES[:3])]
ALIASES_HEAD = b",English,German\n"
FRESH_HEAD = (
    b"id,split,question,effective_year,next_review,false_premise,num_hops,fact_type,source,"
    b"answer_0,answer_1,note\r\n"
)
FRESH = [
    cells(
        str(n), "TEST", f"Who is {x}?", "2022", "24-Nov", "TRUE", "one-hop", rate, "a\nb", f"{x}, say", "", ""
    )
    for n, (x, rate) in enumerate(
        zip(NAMES, ("never-changing", "slow-changing", "fast-changing", "static"), strict=True)
    )
]
CRAG = [
    {
        "query": f"who is {x}?",
        "static_or_dynamic": "real-time",
        "query_time": f"03/0{n + 1}/2024, 23:18:31 PT",
        "answer": x,
        "alternative_answers": "['b']",
        "question_type": "set",
        "search_results": [{"page": "<p>"}],
    }
    for n, x in enumerate(NAMES)
]
PLAIN = [
    {
        "question": {"en": f"Is {x} in?", "fr": f"{x} ?"},
        "label": n % 2,
        "answer": {"en": x},
        "split": "train",
        "aliases": {"en": [x, "b"], "fr": "c; d"},
        "as_of": f"2024-01-0{n + 1}",
        "source": "mine",
    }
    for n, x in enumerate(NAMES)
]
CASES = {
    "evergreenqa": Case(
        "train.csv", WIDE, lines(WIDE_HEAD), {"train_aliases.csv": ALIASES_HEAD + b"9,x,y\n"}
    ),
    "aliases": Case(
        "train_aliases.csv", ALIASES, lines(ALIASES_HEAD), {"train.csv": WIDE_HEAD + b"\n".join(WIDE)}
    ),
    "freshqa": Case("freshqa.csv", FRESH, lines(FRESH_HEAD, b"\r\n")),
    "crag": Case("dev_data.jsonl", dumped(*CRAG), lines()),
    "squad": Case(
        "xquad.ru.json",
        dumped(
            *(
                {"answers": [{"answer_start": n, "text": x}], "id": f"{n:024x}", "question": f"Кто {x}?"}
                for n, x in enumerate(NAMES)
            )
        ),
        squad,
    ),
    "nq_open": Case(
        "NQ-open.jsonl", dumped(*({"question": f"who is {x}", "answer": [x, "b"]} for x in NAMES)), lines()
    ),
    "hotpotqa": Case(
        "hotpot.json",
        dumped(*({"question": f"Is it {x}?", "answer": x, "type": "bridge"} for x in NAMES)),
        array,
    ),
    "chinese_simpleqa": Case(
        "simple.jsonl",
        dumped(
            *(
                {
                    "id": str(n),
                    "primary_category": "甲",
                    "secondary_category": "乙",
                    "question": f"{x}？",
                    "answer": x,
                    "urls": [],
                }
                for n, x in enumerate(NAMES)
            )
        ),
        lines(),
    ),
    "adarague": Case(
        "SeaKR/music.jsonl",
        dumped(
            *(
                {"qid": f"k{n}", "question": f"Who is {x}?", "Final Answer": "z", "ground_truth": x}
                for n, x in enumerate(NAMES)
            )
        ),
        lines(),
        {"ground_truth.json": b'{"k9": ["x"]}'},
    ),
    "adarague_gold": Case(
        "ground_truth.json",
        [f'"k{n}": {json.dumps([x, "b"])}'.encode() for n, x in enumerate(NAMES)],
        keyed,
        {
            "q.jsonl": b"\n".join(
                dumped(*({"qid": f"k{n}", "question": f"Q{n}?", "ground_truth": ""} for n in range(4)))
            )
        },
    ),
    "jsonl": Case("mine.jsonl", dumped(*PLAIN), lines()),
    "csv": Case(
        "mine.csv",
        [
            cells(str(n), f"Who is {x}?", "en", ("1", "slow", "no", "static")[n], x, "a; b")
            for n, x in enumerate(NAMES)
        ],
        lines(b"id,question,language,label,answer,aliases\r\n", b"\r\n"),
    ),
    "parquet": Case(
        "mine.parquet",
        [
            {"question": f"Who is {x}?", "label": n % 2, "answer": x, "aliases": [x, "b"], "split": "train"}
            for n, x in enumerate(NAMES)
        ],
        table,
    ),
}


@pytest.mark.parametrize("again", [b'{"answers": [', b'{"answers": [{"', b'{"answers": [{"text": "x"}, '])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_a_record_of_squad_opens_and_never_closes_costs_that_record(
    again: bytes, times: int, tmp_path: Path
) -> None:
    case = CASES["squad"]
    lay(case, tmp_path)
    for at, row in enumerate(case.rows):
        without = read(case, tmp_path, [r for n, r in enumerate(case.rows) if n != at])
        assert isinstance(without, set)
        assert len(without) == 3
        found = read(case, tmp_path, [*case.rows[:at], again * times + row, *case.rows[at + 1 :]])
        assert isinstance(found, set)
        assert found >= without


def test_a_record_that_ends_in_a_text_behind_many_lists_costs_itself(tmp_path: Path) -> None:
    case = CASES["squad"]
    lay(case, tmp_path)
    again = b'"id": [["a"]], "questi '
    torn = b'{"answers": [{"answer_start": 0, "text": "Ada"}], ' + again * 3 + b'"id": [["a"]], "questi'
    without = read(case, tmp_path, case.rows[1:])
    assert isinstance(without, set)
    assert len(without) == 3
    assert read(case, tmp_path, [torn, *case.rows[1:]]) == without


@pytest.mark.parametrize("reader", CASES)
def test_a_damaged_row_costs_itself(reader: str, tmp_path: Path) -> None:
    assert attack(CASES[reader], tmp_path, COUNT, seed=20) == []
