"""`headrace store`: what the response store holds, whether it is sound, and its way elsewhere.

Law: nothing that was paid for is taken away unless told: damaged rows are set aside, an import
overwrites nothing, and `prune` asks first and keeps what a row or a lock file reaches (`pruning.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.cli.params import prices_of
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.llm.store import Store


def arguments(parser: argparse.ArgumentParser) -> None:
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)
    one = acts.add_parser("stats", help="rows, bytes, tokens and money, by model, purpose and outcome")
    one.add_argument("--json", action="store_true", help="one line of JSON")
    acts.add_parser("verify", help="check every row; damaged ones are set aside and asked again")
    one = acts.add_parser("export", help="write answers to one Parquet file")
    one.add_argument("path", metavar="PATH", help="a file that ends in .parquet")
    one.add_argument("--run", action="store_true", help="only what the rows of this workspace reach")
    one = acts.add_parser("import", help="add what an export, or another store, has and this one lacks")
    one.add_argument("path", metavar="PATH")
    one = acts.add_parser("prune", help="take away what no row of this workspace reaches")
    one.add_argument("--yes", action="store_true", help="do it; without, it is only told what would go")
    one.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="DIR",
        help="another workspace on this store; repeatable",
    )


def main(args: argparse.Namespace, root: Path) -> int:
    acts = {"stats": _stats, "verify": _verify, "export": _export, "import": _import, "prune": _prune}
    return acts[args.act](args, root)


def _stats(args: argparse.Namespace, root: Path) -> int:
    from pipelines.llm.store_upkeep import stats

    prices = prices_of(root)
    with _opened(root) as store:
        told = {**stats(store, prices), "ledger": _ledger(root)}
    if args.json:
        print(json.dumps(told))
        return 0
    print(f"{_place(root)}: version {told['version']}, {told['bytes']:,} bytes")
    print(f"{told['embeddings']:,} embeddings, {told['damaged']:,} damaged rows set aside")
    print(_table(told))
    if told["unpriced"]:
        print(
            f"{told['unpriced']:,} answers have no known price: "
            "llm.prices of params.yaml says what new ones cost, and which models are free"
        )
    if told["ledger"]:
        print(_in_the_ledger(**told["ledger"]))
    return 0


def _ledger(root: Path) -> dict[str, Any] | None:
    """What the ledger beside the store says is spent or held this month, as plain data; None without one."""
    from pipelines.llm.prices import NANO
    from pipelines.llm.spending import ledger_path, month_of, read_sums

    month = month_of(datetime.now(UTC))
    sums = read_sums(ledger_path(_place(root)), month)
    if sums is None:
        return None
    held, taken = sums[1], sums[0] + sums[1]
    return {
        "month": month[1],
        "cost_usd": taken.nano / NANO,
        "tokens": taken.tokens,
        "held_usd": held.nano / NANO,
        "held_tokens": held.tokens,
    }


def _in_the_ledger(month: str, cost_usd: float, tokens: int, held_usd: float, held_tokens: int) -> str:
    from pipelines.llm.prices import told_usd

    return (
        f"the ledger that caps count by, {month}: {told_usd(cost_usd, 0)} USD and {tokens:,} tokens, "
        f"of lost answers too; of them {told_usd(held_usd, 0)} USD and {held_tokens:,} tokens are held now"
    )


def _table(told: Mapping[str, Any]) -> str:
    from pipelines.llm.prices import told_usd

    lines: list[tuple[str, ...]] = [("", "answers", "prompt tokens", "completion tokens", "USD")]
    groups: list[tuple[str, Mapping[str, Any]]] = [("all", told)]
    for name in ("models", "purposes", "outcomes"):
        groups += [(f"{name.removesuffix('s')} {which}", sums) for which, sums in told[name].items()]
    for label, sums in groups:
        numbers = (f"{sums[k]:,}" for k in ("answers", "prompt_tokens", "completion_tokens"))
        lines.append((label, *numbers, told_usd(sums["cost_usd"] or 0.0, sums["unpriced"])))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )


def _verify(args: argparse.Namespace, root: Path) -> int:
    from pipelines.llm.store import Store
    from pipelines.llm.store_upkeep import verify

    with _opened(root) as store:
        found = verify(store)
    if not found.count:
        print(f"{found.answers:,} answers and {found.embeddings:,} embeddings, all sound")
        return 0
    with Store(_place(root)) as store:
        aside = sum(store.set_aside(table, keys) for table, keys in found.damaged.items())
    print(
        f"{found.answers:,} answers and {found.embeddings:,} embeddings: {found.count:,} damaged, "
        f"{aside:,} set aside in the table `damaged`; they are asked again when they are needed"
    )
    return 1


def _export(args: argparse.Namespace, root: Path) -> int:
    from pipelines.lineage import reached
    from pipelines.llm.store_export import export_all, export_some
    from pipelines.llm.store_lent import is_export

    path = root / args.path
    if path.suffix != ".parquet":
        raise ConfigError("an export ends in .parquet", where=args.path, cure=f"name it {path.name}.parquet")
    if path.exists() and not is_export(path):
        raise ConfigError("exists and is no export", where=args.path, cure="name another file")
    with _opened(root) as store:
        if args.run:
            wanted = reached(root / "data")
            done = export_some(store, wanted.answers, wanted.embeddings, path)
            lost = len(wanted.answers) + len(wanted.embeddings) - done.answers - done.embeddings
        else:
            done, lost = export_all(store, path), 0
    print(f"{args.path}: {done.answers:,} answers, {done.embeddings:,} embeddings, {done.bytes:,} bytes")
    if lost:
        print(f"headrace: {lost:,} that rows reach are not in {_place(root)}", file=sys.stderr)
    return int(lost > 0)


def _import(args: argparse.Namespace, root: Path) -> int:
    from pipelines.llm.store import Store
    from pipelines.llm.store_lent import take_in

    with Store(_place(root)) as store:
        done = take_in(store, root / args.path)
    print(
        f"{done.new:,} new, {done.same:,} there already, {done.conflicting:,} conflicting "
        f"(what was there stays), {done.refused:,} damaged and left out"
    )
    return int(done.refused > 0)


def _prune(args: argparse.Namespace, root: Path) -> int:
    from pipelines.cli.pruning import needed
    from pipelines.graph import writer
    from pipelines.llm.store import Store
    from pipelines.llm.store_upkeep import prunable, prune

    places = [root, *(root / d for d in args.also)]
    with ExitStack() as held:
        for place in places:
            held.enter_context(writer(place, "headrace store prune", _say))
        kept = needed(places, _say)
        if kept.stages:
            vectors = " and every vector" if kept.every_vector else ""
            _say(
                f"keeps every answer of {len(kept.stages)} stages{vectors}: {_few(kept.stages)} not fresh, "
                "or their rows are gone; `headrace run` or `dvc checkout`, then prune, takes away more"
            )
        store = held.enter_context(Store(_place(root)))
        going = prunable(store, kept.answers, kept.embeddings, kept.stages, every_vector=kept.every_vector)
        counts = " and ".join(f"{len(k):,} of {going.rows[t]:,} {t}" for t, k in going.keys.items())
        if not any(going.keys.values()):
            print("nothing to prune: every row of the store is reached, or may yet be")
            return 0
        if not args.yes:
            print(f"would take away {counts}, {going.bytes:,} bytes; add --yes to do it")
            return 1
        smaller = prune(store, going)
    print(
        f"took away {counts}, {going.bytes:,} bytes{'' if smaller else '; the file keeps its size for now'}"
    )
    return 0


@contextmanager
def _opened(root: Path) -> Iterator[Store]:
    """The workspace's store to read; an export in its place is read whole."""
    from pipelines.llm.store import Store
    from pipelines.llm.store_lent import take_in

    path = _place(root)
    if path.suffix != ".parquet":
        with Store(path, readonly=True) as store:
            yield store
        return
    with Store.without_file() as store:
        take_in(store, path)
        yield store


def _place(root: Path) -> Path:
    from pipelines.step import store_path

    return store_path(root)


def _few(stages: Collection[str]) -> str:
    """Up to three of them by name."""
    named = ", ".join(sorted(stages)[:3])
    return f"{named}{', ...' if len(stages) > 3 else ''} {'is' if len(stages) == 1 else 'are'}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
