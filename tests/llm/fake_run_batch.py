"""A stand-in for `vllm run-batch`, in a process of its own: `fake_run_batch.py -m MODULE -i IN -o OUT ...`.

As vLLM's it writes one line for each of its input, in order, as they come to be answered; for any
other module than run_batch it is fake_vllm.py. What it shall do is in the file --fake-control, JSON:
"line_ms" to wait before each line, "die_after" so many lines (exit 3, half a line written).
It logs, one line of JSON each: its start (pid, custom_ids, model) and its end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import fake_vllm
from scripted_server import _good, answer_to

RUNNER = "vllm.entrypoints.openai.run_batch"


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", required=True)
    parser.add_argument("-i", "--input-file", required=True)
    parser.add_argument("-o", "--output-file", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", nargs="+", required=True)
    parser.add_argument("--generation-config")
    parser.add_argument("--fake-log", required=True)
    parser.add_argument("--fake-control", required=True)
    return parser.parse_args(words)


def answered(line: dict[str, Any], served: list[str]) -> dict[str, Any]:
    body = line["body"]
    said = {"id": "vllm-1", "custom_id": line["custom_id"], "error": None}
    if line["url"] != "/v1/chat/completions" or body["model"] not in served:
        return said | {"response": {"status_code": 400, "request_id": "r", "body": None}, "error": "refused"}
    good = _good(line["url"], body, {}, answer_to)
    return said | {"response": {"status_code": 200, "request_id": "r", "body": good}}


def main(words: list[str]) -> None:
    if RUNNER not in words:
        control = words.index("--fake-control")
        fake_vllm.main(words[:control] + words[control + 2 :])
        return
    told = arguments(words)
    does = json.loads(Path(told.fake_control).read_text())
    asked = [json.loads(line) for line in Path(told.input_file).read_text().split("\n") if line]

    def note(**line: Any) -> None:
        with Path(told.fake_log).open("a") as log:
            log.write(json.dumps({"pid": os.getpid()} | line) + "\n")

    note(event="began", keys=[line["custom_id"] for line in asked], model=told.model)
    with Path(told.output_file).open("w") as out:
        for number, line in enumerate(asked):
            time.sleep(does.get("line_ms", 0) / 1000)
            whole = json.dumps(answered(line, told.served_model_name)) + "\n"
            if number == does.get("die_after"):
                out.write(whole[: len(whole) // 2])
                out.flush()
                print("RuntimeError: the engine core is gone")
                sys.stdout.flush()
                os._exit(3)
            out.write(whole)
            out.flush()
    note(event="ended")


def interpreter(folder: Path) -> Path:
    """An executable that takes the arguments of `python` and is this program."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{__file__}' \"$@\"\n")
    script.chmod(0o755)
    return script


if __name__ == "__main__":
    main(sys.argv[1:])
