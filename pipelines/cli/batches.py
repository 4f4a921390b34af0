"""`headrace batches`: the batches that are out, and what can be done about them from the shell.

Law: to wait takes answers into the store as a run would; to cancel leaves what a batch answered
until then to be taken; to forget is the one act by which something paid for can be lost.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pipelines.llm.backends.batch_desk import Desk
    from pipelines.llm.backends.batch_ledger import Batch, Ledger
    from pipelines.llm.backends.batch_office import Office
    from pipelines.llm.settings import Settings

ALL = "all"


def arguments(parser: argparse.ArgumentParser) -> None:
    act = parser.add_mutually_exclusive_group()
    act.add_argument("--all", action="store_true", help="list those that are over, too")
    act.add_argument("--wait", action="store_true", help="watch them to their end and store their answers")
    act.add_argument("--cancel", metavar="ID", help="ask the seller to end one, or `all`")
    act.add_argument("--forget", metavar="ID", help="give up one that cannot be reached any more, unanswered")


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines.llm.backends.batch_ledger import Ledger, ledger_path
    from pipelines.step import store_path

    store = store_path(root)
    path = ledger_path(store)
    if not path.is_file():
        print("no batches")
        return 0
    ledger = Ledger(path)
    try:
        if args.cancel:
            _cancel(ledger, args.cancel, root, store)
        elif args.forget:
            (batch,) = _named(ledger, args.forget)
            ledger.end(batch.uid, status="forgotten")
            print(f"{_name(batch)}: forgotten; its {batch.requests} questions may be asked again")
        elif args.wait:
            _wait(ledger, root, store)
        else:
            _list(ledger, open_only=not args.all)
    finally:
        ledger.close()
    return 0


def _list(ledger: Ledger, *, open_only: bool) -> None:
    batches = ledger.batches(open_only=open_only)
    if not batches:
        print("no batches")
    for b in batches:
        made = datetime.fromtimestamp(b.made_at, UTC).strftime("%Y-%m-%d %H:%M")
        failed = f", {b.failed} failed" if b.failed else ""
        unknown = f", {b.unknown} lines of strangers" if b.unknown else ""
        said = f": {b.said}" if b.said else ""
        print(
            f"{_name(b)}  {b.status}  {b.done} of {b.requests}{failed}{unknown}"
            f"  {b.model} {b.kind}  {made}  {b.address}{said}"
        )


def _cancel(ledger: Ledger, name: str, root: Path, store: Path) -> None:
    settings = _settings(root)
    batches = ledger.batches() if name == ALL else _named(ledger, name)
    desks: dict[str, Desk] = {}
    try:
        for batch in batches:
            if not batch.id:
                print(f"{_name(batch)}: not sent yet; the next run finds out")
                continue
            if batch.address not in desks:
                desks[batch.address] = _desk(batch.address, settings, store)
            desks[batch.address].cancel(batch)
            print(f"{_name(batch)}: cancelled; what it answered is stored by the next run, or by --wait")
    finally:
        for desk in desks.values():
            desk.close()


def _wait(ledger: Ledger, root: Path, store: Path) -> None:
    """Every batch that is out, at whatever desk, to its end."""
    from pipelines.llm.backends.batch_office import Office
    from pipelines.llm.store import Store

    settings = _settings(root)
    with Store(store) as answers:
        for address in sorted({b.address for b in ledger.batches()}):
            desk = _desk(address, settings, store)
            try:
                office = Office(desk, ledger, answers, settings)
                office.recover()
                _watch(office)
            finally:
                desk.close()


def _watch(office: Office) -> None:
    from pipelines.llm.backends.batch_taking import attend

    watches = {b.uid: (b, office.watch(b)) for b in office.open() if b.id}
    while watches:
        due = min(watch.due for _, watch in watches.values())
        time.sleep(max(0.0, due - time.time()))
        for uid, (batch, watch) in list(watches.items()):
            if watch.due > time.time():
                continue
            taken = attend(office, batch, watch, lambda _: None)
            if taken is not None:
                del watches[uid]
                said = f": {taken.seen.said}" if taken.seen.said else ""
                print(
                    f"{_name(batch)}: {taken.seen.status}, {taken.answers} of {batch.requests} stored{said}",
                    flush=True,
                )


def _named(ledger: Ledger, name: str) -> list[Batch]:
    """The open batch of this id. Raises ConfigError with the nearest one."""
    batches = {_name(b): b for b in ledger.batches()}
    if name not in batches:
        raise ConfigError(f"no batch {name!r} is out", cure=nearest(name, batches))
    return [batches[name]]


def _name(batch: Batch) -> str:
    return batch.id or batch.uid


def _desk(address: str, settings: Settings, store: Path) -> Desk:
    from pipelines.llm.backends.batch_opening import local_desk, openai_desk
    from pipelines.llm.transport import safe

    if not address.startswith(("http://", "https://")):
        return local_desk(settings, store)
    told = settings.base_url.rstrip("/").removesuffix("/v1")
    return openai_desk(settings if told and safe(told) == address else replace(settings, base_url=address))


def _settings(root: Path) -> Settings:
    """How to reach the desks: the section `llm` of params.yaml, as the environment overrides it."""
    from pipelines.data.config import load, read_params
    from pipelines.llm.settings import Settings

    told = read_params(root / "params.yaml").get("llm") or {}
    settings = load(Settings, {k: v for k, v in told.items() if k != "model"}, "llm")
    return replace(settings, base_url=os.environ.get("HEADRACE_LLM_BASE_URL") or settings.base_url)
