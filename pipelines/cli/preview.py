"""`headrace preview`: what a run would ask of models, before it: requests, tokens, money, time.

Law: no model is asked, and nothing is written in the workspace but what DVC notes for itself. The
stages' own code runs in a folder aside over a client that only looks into the response store, so
what is counted is what a run would ask. A stage whose input hangs on answers that are not there yet
is unknown until those are. A replay asks nobody: where it lacks answers, a run would stop, and that is said.

Of a fresh stage, which a run would pass by, the requests are counted and the code goes no further.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.asking import AskingStep
from pipelines.cli.params import check_params
from pipelines.environment import variables
from pipelines.errors import ConfigError, HeadraceError, nearest
from pipelines.llm.models import MODELS_VARIABLE
from pipelines.progress import Work
from pipelines.step import ANSWERS, store_path

if TYPE_CHECKING:
    from pipelines.graph import Stage
    from pipelines.llm.client import Client
    from pipelines.llm.forecast import Forecast

STOPPED = ("training", "evaluation")  # stages of these end when they leave the client: they train and track
HEAD = ("stage", "model", "rows", "new", "stored", "tokens", "USD", "at most", "time")


@dataclass
class Line:
    """One stage that asks. `unknown` names the stage that has to run first; `fault` why it cannot say."""

    stage: str
    rows: int | None = None
    fresh: bool = False
    unknown: str = ""
    fault: str = ""
    texts_new: int = 0
    texts_stored: int = 0
    models: list[dict[str, Any]] = field(default_factory=list)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="e.g. trit.translate@fr (all that ask)")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def main(args: argparse.Namespace, root: Path) -> int:
    from pipelines import graph

    params = check_params(root)
    stages, changed = graph.state(root)
    chosen = _chosen(args.stages, [s.name for s in stages])
    aside = Path(tempfile.mkdtemp(prefix="headrace-preview-"))
    noted = {MODELS_VARIABLE: str(aside / "models")}  # where hashes once taken are noted
    try:
        with variables(**noted):
            found = Preview(root, aside, params, stages, set(changed)).lines(chosen)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    if args.json:
        print(json.dumps({"stages": [asdict(x) for x in found], "total": total(found)}))
    else:
        silent = sorted(chosen - {line.stage for line in found}) if args.stages else []
        tables = [table(found)] if found else []
        print("\n".join([*tables, *(f"{name}: asks no model" for name in silent)]))
    return 1 if any(line.fault for line in found) else 0


def _chosen(named: Sequence[str], known: Sequence[str]) -> set[str]:
    """The stages told, a matrix by its bare name; all where none is. Raises ConfigError."""
    chosen: set[str] = set()
    for name in named:
        meant = [k for k in known if name in (k, k.partition("@")[0])]
        if not meant:
            raise ConfigError(f"unknown stage {name!r}", cure=nearest(name, known))
        chosen.update(meant)
    return chosen or set(known)


class PreviewStep(AskingStep):
    """A stage's run over a client that asks nobody."""

    def __init__(self, *args: Any, real: Path, forecast: Forecast, read_on: bool) -> None:
        super().__init__(*args)
        self._real, self.forecast, self._read_on = real, forecast, read_on

    def client(self, backend: str, model: str = "") -> Client:
        from pipelines.llm.forecast import Previewer

        settings = self.settings(backend, model)
        lent = self._real / ANSWERS
        return Previewer(settings, store_path(self._real), lent, self.forecast, read_on=self._read_on)

    def _watched(self, client: Client, what: str, total: int | None = None) -> AbstractContextManager[Work]:
        """No progress: nobody waits for an answer."""
        return nullcontext(Work(what, total))


@dataclass
class Preview:
    """Runs what is needed of the graph of `root` in the folder `aside`."""

    root: Path
    aside: Path
    params: Mapping[str, Any]
    stages: Sequence[Stage]
    stale: set[str]

    def lines(self, chosen: set[str]) -> list[Line]:
        """Of each chosen stage that asks, in the order of the graph."""
        from pipelines import graph

        above = graph.upstream(self.stages)
        asking = {s.name for s in self.stages if asks(_source(s.name))}
        needed = _needed(chosen & asking, above)
        self._link_inputs()
        found: list[Line] = []
        waits: dict[str, str] = {}  # stage -> the one that has to run first
        for stage in self.stages:
            name = stage.name
            if name not in needed:
                continue
            line = Line(name, fresh=name not in self.stale)
            before = next((waits[a] for a in above[name] if a in waits), "")
            if before and not line.fresh:
                line.unknown = waits[name] = before
            elif (name in asking or not line.fresh) and not self._run(stage, line) and not line.fresh:
                waits[name] = name
            if line.fresh:
                self._link(f"data/{stage.folder}")
            if name in asking & chosen:
                found.append(line)
        return found

    def _run(self, stage: Stage, line: Line) -> bool:
        """Fills the line; whether the stage came to its end, and its outs lie aside."""
        from pipelines.data.config import load
        from pipelines.llm.forecast import Forecast, Unanswered

        bare, item = stage.name.partition("@")[0], stage.item
        engine, name = bare.split(".")
        module = importlib.import_module(f"pipelines.{engine}.{name}")
        values = load(module.Params, (self.params.get(engine) or {}).get(name), bare)
        forecast = Forecast()
        read_on = not line.fresh and engine not in STOPPED
        told = (bare, item, self.aside, self.params.get("seed", 0), self.params.get("llm"))
        step = PreviewStep(*told, real=self.root, forecast=forecast, read_on=read_on)
        if any(out.endswith("/embedded.parquet") for out in stage.outs):
            step.embedded = set()
        try:
            module.run(step, values)
            gate, allowed = getattr(module, "GATE", None), getattr(values, "allow_failed", 0.0)
            step.finish(getattr(module, "SCHEMA", None), gate, allowed)
            ended = True
        except Unanswered:
            ended = False
        except HeadraceError as error:
            ended, line.fault = False, str(error).replace(f"{self.aside}/", "")
        if forecast.missed and not line.fresh:
            line.fault = line.fault or _missed(forecast.missed, store_path(self.root))
        line.rows = step.rows_in
        line.texts_new, line.texts_stored = forecast.texts_new, forecast.texts_stored
        line.models = [asdict(c) for _, c in sorted(forecast.counts.items())]
        return ended

    def _link_inputs(self) -> None:
        """What no stage makes: raw files, observations and the like."""
        engines = {s.name.partition(".")[0] for s in self.stages}
        (self.aside / "data").mkdir()
        for path in [*self.root.iterdir(), *(self.root / "data").glob("*")]:
            below = path.relative_to(self.root)
            if path.name not in {"data", ".headrace", ".dvc"} and below.parts[-1] not in engines:
                self._link(str(below))

    def _link(self, below: str) -> None:
        here, there = self.aside / below, self.root / below
        if there.exists() and not here.exists():
            here.parent.mkdir(parents=True, exist_ok=True)
            here.symlink_to(there.absolute())


def _missed(count: int, store: Path) -> str:
    """What a run by replay would stop at."""
    from pipelines.llm.backends.replay import CURE, ReplayMiss

    what = f"replay: {count:,} answers are missing from the store, and a run would stop"
    return str(ReplayMiss(what, where=str(store), cure=CURE))


def _source(name: str) -> Path:
    engine, step = name.partition("@")[0].split(".")
    return Path(__file__).parents[1] / engine / f"{step}.py"


def asks(source: Path) -> bool:
    """Whether the code of a stage opens a client."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr == "client" for f in calls)


def _needed(names: Iterable[str], above: Mapping[str, Sequence[str]]) -> set[str]:
    """The stages and all that they read from."""
    needed: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += above[name]
    return needed


def total(found: Sequence[Line]) -> dict[str, Any]:
    """Sums over all that is known; a sum that holds an unknown part is None."""
    models = [m for line in found for m in line.models]

    def added(name: str) -> float | None:
        parts = [m[name] for m in models]
        return None if None in parts else sum(parts)

    return {
        "new": sum(m["new"] for m in models),
        "stored": sum(m["stored"] for m in models),
        "texts_new": sum(line.texts_new for line in found),
        "texts_stored": sum(line.texts_stored for line in found),
        "prompt_tokens": sum(m["prompt_tokens"] for m in models),
        "completion_tokens": sum(m["completion_tokens"] for m in models),
        "usd": added("usd"),
        "usd_most": added("usd_most"),
        "seconds": added("seconds"),
        "unknown": [line.stage for line in found if line.unknown or line.fault],
    }


def table(found: Sequence[Line]) -> str:
    """A line for each stage and model, what is unknown below."""
    body, notes = [], []
    for line in found:
        if line.unknown or line.fault:
            why = f"unknown until {line.unknown} has run" if line.unknown else line.fault
            notes.append(f"{line.stage}: {why}")
            continue
        rows = "-" if line.rows is None else f"{line.rows:,}"
        body += [(line.stage, m["model"], rows, *_figures(m)) for m in line.models]
        if line.texts_new or line.texts_stored:
            texts = (f"{line.texts_new:,}", f"{line.texts_stored:,}", "-", "-", "-", "-")
            body.append((line.stage, "(texts to embed)", rows, *texts))
        if not line.models and not line.texts_new and not line.texts_stored:
            body.append((line.stage, "-", rows, "0", "0", "-", "-", "-", "-"))
    if len(body) > 1:
        body.append(("total", "", "", *_figures(total(found))))
    widths = [max(len(row[i]) for row in (HEAD, *body)) for i in range(len(HEAD))]
    lines = [
        "  ".join(
            c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in (HEAD, *body)
    ]
    return "\n".join([*(x.rstrip() for x in lines), *notes])


def _figures(told: Mapping[str, Any]) -> tuple[str, ...]:
    tokens = told["prompt_tokens"] + told["completion_tokens"]
    money = ["?" if told[k] is None else f"{told[k]:.4f}" for k in ("usd", "usd_most")]
    return (f"{told['new']:,}", f"{told['stored']:,}", f"{tokens:,}", *money, _time(told["seconds"]))


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
