"""Keeps one server: `python -I keeper.py TOKEN LOG COMMAND...`, run by whoever wants the server.

Law: the server, with all that it started, ends when its keeper's standard input does (the pipe's
other end dies with the owner, also by SIGKILL), when the keeper is handed to another parent, is
terminated, or when the server itself ends. Nothing else is ever signalled: a process is the
server's only if its own environment holds the token, which is drawn for each server, and it is
held by a file descriptor while that is read, so that a number used anew cannot be hit.

The standard library alone: it starts in milliseconds and runs outside every environment.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

TOKEN_VARIABLE = "HEADRACE_SERVER_TOKEN"
GRACE_S = 5.0  # between asking a server to end and ending it
KILL_S = 10.0  # after which a process that cannot be killed is left to the kernel
POLL_S = 1.0
PR_SET_PDEATHSIG = 1


def started(pid: int) -> str:
    """When a live process began, as the kernel tells it; empty if there is none (a zombie is none)."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError, ValueError):
        return ""
    return "" if state in ("Z", "X") else f"{boot} {rest[18]}"


def members(token: str) -> Iterator[int]:
    """File descriptors (pidfd) of the live processes that were given this token."""
    mark = f"{TOKEN_VARIABLE}={token}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            held = os.pidfd_open(int(entry.name))
        except OSError:
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and not _ended(held):
                yield held
        except OSError:
            pass
        finally:
            os.close(held)


def end(token: str, grace_s: float = GRACE_S) -> bool:
    """End every process of the token; whether there was any. Asks first, then kills."""
    until, found = time.monotonic() + grace_s, False
    while time.monotonic() < until + KILL_S:
        kind = signal.SIGKILL if time.monotonic() > until else None if found else signal.SIGTERM
        alive = False
        for held in members(token):
            alive = found = True
            if kind is not None:
                _signal(held, kind)
        if not alive:
            break
        time.sleep(0.02)
    return found


def _ended(held: int) -> bool:
    """A pidfd is readable once its process has ended, a zombie included."""
    return bool(select.select([held], [], [], 0)[0])


def _signal(held: int, kind: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(held, kind)
    except ProcessLookupError:
        return


def keep(token: str, log: Path, command: list[str]) -> int:
    """Run the command until it ends or must end; its exit status, as a shell would tell it."""
    owner = os.getppid()
    end_server = _once(lambda: end(token))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to handle

    def terminated(_: int, __: FrameType | None) -> None:
        threading.Thread(target=end_server).start()

    signal.signal(signal.SIGTERM, terminated)
    with log.open("ab") as out:
        # From the main thread: the kernel signals the server when the thread that made it ends.
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {TOKEN_VARIABLE: token},
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - no other thread runs yet
        )
    threading.Thread(target=_watch, args=(owner, end_server), daemon=True).start()
    code = server.wait()
    end(token)  # what it left behind
    return code if code >= 0 else 128 - code


def _once(work: Callable[[], object]) -> Callable[[], None]:
    lock = threading.Lock()

    def call() -> None:
        if lock.acquire(blocking=False):
            work()

    return call


def _watch(owner: int, end_server: Callable[[], None]) -> None:
    """Returns when there is no owner any more, having ended the server."""
    while os.getppid() == owner:
        if select.select([sys.stdin], [], [], POLL_S)[0] and not os.read(sys.stdin.fileno(), 4096):
            break
    end_server()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main(arguments: list[str]) -> int:
    token, log, *command = arguments
    return keep(token, Path(log), command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
