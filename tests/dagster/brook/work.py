"""The work of the small graph. What a stage leaves behind is what a step of the project leaves behind."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

OTHER = ("refused", "unparsable", "unverified", "failed", "over_budget")
Rows = list[dict[str, Any]]
REJECTED = pa.schema([("item", pa.string()), ("reason", pa.string())])


def read(folder: str) -> Rows:
    return list(pq.read_table(Path("data", folder, "rows.parquet")).to_pylist())


def publish(
    folder: str, rows: Rows, rejected: Rows, rows_in: int, gate: dict[str, Any] | None = None
) -> None:
    at = Path("data", folder)
    at.mkdir(parents=True, exist_ok=True)
    outcomes = {
        "stage": folder,
        "rows_in": rows_in,
        "items": len(rows) + len(rejected),
        "accepted": len(rows),
        "rejected": len(rejected),
        **dict.fromkeys(OTHER, 0),
        "reasons": {f"rejected({r['reason']})": 1 for r in rejected},
        "rows_out": len(rows),
        "tokens": {"prompt": 3, "completion": 4},
        "cost_usd": 0.0,
        "gate": gate,
        "metrics": {"letters": {"all": sum(len(r["word"]) for r in rows)}},
    }
    pq.write_table(pa.Table.from_pylist(rejected, schema=REJECTED), at / "rejected.parquet")
    (at / "outcomes.json").write_text(json.dumps(outcomes))
    if gate is not None and not gate["passed"]:
        sys.exit(f"{folder}: the gate refused the rows")
    pq.write_table(pa.Table.from_pylist(rows), at / "rows.parquet")


def ingest(longest: int) -> None:
    files = sorted(p for p in Path("data/raw/brook").rglob("*") if p.is_file())
    words = [w for f in files for w in f.read_text().splitlines()]
    good = [w for w in sorted(words) if 0 < len(w) <= longest]
    rejected = [{"item": w, "reason": "too_long" if w else "empty"} for w in words if w not in good]
    rows = [{"row_id": w, "word": w} for w in good]
    publish("brook/ingest", rows, rejected, len(words))


def judge(least: int) -> None:
    rows = read("brook/loud")
    passed = len(rows) >= least
    check = {"measure": "rows", "meaning": "enough words", "low": least, "high": None}
    gate = {
        "suite": "judge",
        "passed": passed,
        "checks": [{**check, "value": float(len(rows)), "passed": passed}],
    }
    publish("brook/judge", rows, [], len(rows), gate)


def main(stage: str, item: str = "") -> None:
    engine, step = stage.split(".")
    params = yaml.safe_load(Path("params.yaml").read_text())[engine][step]
    print(f"working on {stage}", file=sys.stderr, flush=True)
    if stage == "brook.ingest":
        ingest(params["longest"])
    elif stage == "brook.loud":
        rows = read("brook/ingest")
        loud = [{**r, "word": r["word"].upper() + params["tail"]} for r in rows]
        publish("brook/loud", loud, [], len(rows))
    elif stage == "brook.tell":
        while params["waits_for"] and not Path(params["waits_for"]).exists():
            time.sleep(0.05)
        rows = read("brook/ingest")
        publish(f"brook/tell/{item}", [{**r, "word": f"{r['word']} ({item})"} for r in rows], [], len(rows))
    elif stage == "brook.judge":
        judge(params["least"])
    else:
        Path("reports").mkdir(exist_ok=True)
        Path("reports/page.html").write_text("\n".join(r["word"] for r in read("brook/judge")))
        Path("reports/plot.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')


main(*sys.argv[1:])
