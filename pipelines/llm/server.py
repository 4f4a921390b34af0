"""The embedded model's server process: `python -m pipelines.llm.server NAME WEIGHTS.gguf`.

Law: it never outlives whoever started it. It ends when its standard input does (the pipe's other
end dies with the parent, also by SIGKILL) or when it is handed to another parent. It listens on
loopback, on a free port, and prints one line of JSON with its address when it is ready.

One thread and four slots: on a busy machine two threads run at a seventh of one thread's speed.
Which slot takes a question is llama.cpp's to choose: told to (`id_slot`), so that the samples of a
question find its prompt read, one slot in 300 answers never came to an end.
With HEADRACE_SERVER_LOG=FILE each request is logged there, one line of JSON, before it is answered.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any

SLOTS = 4
SERVERS = max(1, min(4, os.cpu_count() or 1))  # of one model
CONTEXT_PER_SLOT = 2048  # tokens
PROMPT_CACHE_MIB = 256  # llama.cpp would take up to 8 GB
QUIET = 2  # warnings and errors
LOG_VARIABLE = "HEADRACE_SERVER_LOG"


def start(name: str, path: str) -> Any:
    """Load the weights and serve them; returns the running server."""
    llama: Any = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = path
    params.model_alias = {name}  # else the raw bodies would hold the path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * CONTEXT_PER_SLOT
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.warmup = params.ui = params.fit_params = False
    params.verbosity = QUIET
    return llama.Server(params)


def end_with_parent(parent: int) -> None:
    """End this process at once when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def main(arguments: list[str]) -> int:
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=end_with_parent, args=(parent,), daemon=True).start()
    name, path = arguments
    server = start(name, path)
    url = server.listening_address
    if log := os.environ.get(LOG_VARIABLE):
        from pipelines.llm.request_log import serve_logged

        url = serve_logged(url, log)
    print(json.dumps({"url": url, "pid": os.getpid()}), flush=True)
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)  # at once, also in the middle of an answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
