"""egoavu.questions: the five tasks of EgoAVU over every clip (section 3.5).

A work item is (clip, task, modality); SSA, AVSN and AVDN have the modality of what they ask
for. Law: answers come from nodes and edges and name them; the right option's place and the
halves are decided by hashes and counts, never by the order of the input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.data.config import Share
from pipelines.data.rows import Schema, digest
from pipelines.egoavu import open_tasks
from pipelines.egoavu.balance import LETTERS, by_hash, deal, split_of
from pipelines.egoavu.graph import graph_of
from pipelines.egoavu.hallucination import Clip, Negatives, Probe, pair
from pipelines.egoavu.mcg import Node, reading
from pipelines.egoavu.temporal import Choice, Events, neighbours, orderings
from pipelines.egoavu.timeline import Span, windows
from pipelines.errors import ConfigError
from pipelines.gates.egoavu import QUESTIONS as GATE
from pipelines.step import Step

__all__ = ["GATE", "SCHEMA", "Params", "run"]

SCHEMA = Schema(
    name="egoavu.questions",
    columns={
        "clip_id": pl.String,
        "video_id": pl.String,
        "wearer": pl.String,
        "split": pl.String,  # train | bench, by wearer where known, else by video
        "task": pl.String,  # SSA | AVSN | AVDN | TR | AVH
        "modality": pl.String,  # action | object | sound | mixed
        "kind": pl.String,  # open | before | after | first | last | yes_no
        "about": pl.String,  # which nodes or window the question is about
        "question": pl.String,
        "options": pl.List(pl.String),  # TR: four texts, A to D
        "option_nodes": pl.List(pl.String),
        "option_events": pl.List(pl.String),  # see gates.egoavu.event_key
        "answer": pl.String,  # a letter, yes or no, or a text
        "evidence": pl.List(pl.String),  # node ids
        "start_s": pl.Float64,  # the time asked about, on the clock of the video
        "end_s": pl.Float64,
    },
    identity=("clip_id", "task", "modality", "kind", "about"),
)
ITEMS = (
    ("SSA", "sound"),
    ("AVSN", "mixed"),
    ("AVDN", "mixed"),
    *(("TR", m) for m in ("action", "object", "sound")),
    *(("AVH", m) for m in ("action", "object", "sound")),
)


@dataclass(frozen=True)
class Params:
    window_s: float = 10.0  # paper: 10 s
    windows_per_clip: int = 12  # asked about by SSA and by AVSN; 0 = all
    neighbours_per_item: int = 6  # TR before and after, for each clip and modality; paper: 2
    bench_share: Share = 0.0909  # paper: 900 of 9,900 videos


@dataclass(frozen=True)
class Draft:
    """A question before its options are placed."""

    clip: Clip
    task: str
    modality: str
    kind: str
    about: str
    question: str
    answer: str
    evidence: tuple[str, ...]
    span: Span
    parents: tuple[str, ...]
    choice: Choice | None = None


class Asker:
    """Makes the drafts of each item. Clips are given in the order of their ids."""

    def __init__(self, clips: Sequence[Clip], narrations: Mapping[str, Any], seed: int, params: Params):
        self.clips, self.narrations, self.seed, self.params = clips, narrations, seed, params
        self.negatives = Negatives(clips, seed)
        self.by_video = defaultdict[str, list[Clip]](list)
        for clip in clips:
            self.by_video[clip.row["video_id"]].append(clip)

    def ask(self, clip: Clip, task: str, modality: str) -> list[Draft] | str:
        """Drafts of one work item, or the reason why it cannot be asked."""
        makers: dict[str, Callable[[Clip, str], list[Draft] | str]] = {
            "SSA": self.sounds,
            "AVSN": self.segments,
            "AVDN": self.whole,
            "TR": self.order,
            "AVH": self.presence,
        }
        return makers[task](clip, modality)

    def sounds(self, clip: Clip, modality: str) -> list[Draft] | str:
        if not clip.row["exhaustive"]["sound"]:
            return "not_exhaustive"
        spans = windows(clip.span, self.params.window_s)
        found = [open_tasks.source_of_sounds(clip.row, clip.graph, s) for s in spans]
        kept = self._some([one for one in found if one is not None], clip, "SSA")
        return [self._open(clip, "SSA", modality, one, ()) for one in kept] or "not_exhaustive"

    def segments(self, clip: Clip, modality: str) -> list[Draft] | str:
        told = self.narrations.get(clip.row["clip_id"])
        if told is None:
            return "no_narration"
        found = [open_tasks.window_narration(clip.row, w) for w in told["windows"] if w["text"]]
        kept = self._some(found, clip, "AVSN")
        return [
            self._open(clip, "AVSN", modality, one, (told["row_id"],)) for one in kept
        ] or "too_few_events"

    def whole(self, clip: Clip, modality: str) -> list[Draft] | str:
        told = self.narrations.get(clip.row["clip_id"])
        if told is None:
            return "no_narration"
        one = open_tasks.clip_narration(clip.row, told["narration"], clip.graph)
        return [self._open(clip, "AVDN", modality, one, (told["row_id"],))]

    def order(self, clip: Clip, modality: str) -> list[Draft] | str:
        others = [o for o in self.by_video[clip.row["video_id"]] if o is not clip]
        events = Events(clip.graph, [o.graph for o in others], modality)
        near = {_about(c): c for c in neighbours(events, self.seed)}
        order = by_hash(sorted(near), self.seed, clip.row["clip_id"], "TR", modality)
        chosen = [near[k] for k in order[: self.params.neighbours_per_item]] + orderings(events, self.seed)
        homes = {n.node_id: o for o in [clip, *others] for n in o.graph.nodes}
        return [self._choice(clip, modality, c, homes) for c in chosen] or "too_few_events"

    def presence(self, clip: Clip, modality: str) -> list[Draft] | str:
        got = pair(clip, self.negatives, modality)
        return got if isinstance(got, str) else [self._probe(clip, modality, probe) for probe in got]

    def _some(self, found: list[open_tasks.Open], clip: Clip, task: str) -> list[open_tasks.Open]:
        """At most `windows_per_clip` of the windows, chosen by hash."""
        by_start = {str(one.span.start_s): one for one in found}
        order = by_hash(sorted(by_start), self.seed, clip.row["clip_id"], task)
        return [by_start[k] for k in order[: self.params.windows_per_clip or None]]

    def _open(
        self, clip: Clip, task: str, modality: str, one: open_tasks.Open, parents: tuple[str, ...]
    ) -> Draft:
        about = f"{one.span.start_s}-{one.span.end_s}"
        given = (clip.row["row_id"], *parents)
        return Draft(
            clip, task, modality, "open", about, one.question, one.answer, one.evidence, one.span, given
        )

    def _choice(self, clip: Clip, modality: str, choice: Choice, homes: Mapping[str, Clip]) -> Draft:
        nodes = [*([choice.anchor] if choice.anchor else []), choice.right]
        shown = [choice.right, *choice.wrong]
        return Draft(
            clip,
            "TR",
            modality,
            choice.kind,
            _about(choice),
            choice.question,
            "",
            tuple(n.node_id for n in nodes),
            clip.span,
            (clip.row["row_id"], *(homes[n.node_id].row["row_id"] for n in shown)),
            choice,
        )

    def _probe(self, clip: Clip, modality: str, probe: Probe) -> Draft:
        parents = (clip.row["row_id"], probe.origin.row["row_id"])
        about, evidence = probe.node.node_id, probe.evidence
        return Draft(
            clip,
            "AVH",
            modality,
            "yes_no",
            about,
            probe.question,
            probe.answer,
            evidence,
            probe.span,
            parents,
        )


def run(step: Step, params: Params) -> None:
    if params.window_s <= 0:
        raise ConfigError("must be above 0", where="params.yaml: egoavu.questions.window_s")
    graphs = step.read("egoavu/graph").sort("clip_id")
    narrations = {r["clip_id"]: r for r in step.read("egoavu/narrate").iter_rows(named=True)}
    clips = [Clip(row, graph_of(row)) for row in graphs.iter_rows(named=True)]
    step.plan(_item(c, task, modality) for c in clips for task, modality in ITEMS)
    asker = Asker(clips, narrations, step.seed, params)
    drafts: dict[str, list[Draft]] = {}
    for clip in clips:
        for task, modality in ITEMS:
            got, item = asker.ask(clip, task, modality), _item(clip, task, modality)
            if isinstance(got, str):
                step.reject(item, got, parents=[clip.row["row_id"]])
            else:
                drafts[item] = got
    rows = dict(finished([d for some in drafts.values() for d in some], step.seed, params.bench_share))
    for item, some in drafts.items():
        step.accept(item, *(rows[_key(d)] for d in some))
    step.metrics |= tally(list(rows.values()))


def finished(drafts: Sequence[Draft], seed: int, bench_share: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows by draft key, with split and placed options."""
    splits = {_key(d): split_of(split_key(d.clip.row), seed, bench_share) for d in drafts}
    groups = [((splits[_key(d)], d.modality, d.kind), _key(d)) for d in drafts if d.choice]
    places = deal(groups, seed, len(LETTERS))
    for draft in drafts:
        key = _key(draft)
        options: list[Node] = []
        answer = draft.answer
        if draft.choice:
            wrong = {n.node_id: n for n in draft.choice.wrong}
            options = [wrong[i] for i in by_hash(sorted(wrong), seed, key)]
            options.insert(places[key], draft.choice.right)
            answer = LETTERS[places[key]]
        row = draft.clip.row
        yield (
            key,
            SCHEMA.row(
                **{c: row[c] for c in ("clip_id", "video_id", "wearer")},
                **{c: getattr(draft, c) for c in ("task", "modality", "kind", "about", "question")},
                split=splits[key],
                options=[reading(n.kind, n.text, n.detail) for n in options],
                option_nodes=[n.node_id for n in options],
                option_events=[n.event for n in options],
                answer=answer,
                evidence=list(draft.evidence),
                start_s=draft.span.start_s,
                end_s=draft.span.end_s,
                parents=draft.parents,
            ),
        )


def split_key(row: Mapping[str, Any]) -> str:
    """What decides the half: the wearer where known, else the video."""
    return f"wearer {row['wearer']}" if row["wearer"] else f"video {row['video_id']}"


def tally(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows by task, and what an answer that never looks would score: the share of the commonest."""
    tasks: dict[str, int] = {}
    for row in rows:
        tasks[row["task"]] = tasks.get(row["task"], 0) + 1
    found: dict[str, Any] = {f"rows_{task}": n for task, n in sorted(tasks.items())}
    for task in ("TR", "AVH"):
        answers = [r["answer"] for r in rows if r["task"] == task]
        if answers:
            commonest = max(answers.count(a) for a in set(answers))
            found[f"constant_answer_{task}"] = round(commonest / len(answers), 4)
    found["rows_bench"] = sum(r["split"] == "bench" for r in rows)
    return found


def _item(clip: Clip, task: str, modality: str) -> str:
    return f"{clip.row['clip_id']}|{task}|{modality}"


def _about(choice: Choice) -> str:
    anchor = choice.anchor.node_id if choice.anchor else ""
    return f"{choice.kind} {anchor} {choice.right.node_id}"


def _key(draft: Draft) -> str:
    return digest(draft.clip.row["clip_id"], draft.task, draft.modality, draft.kind, draft.about)
