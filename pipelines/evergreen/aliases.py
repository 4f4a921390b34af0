"""evergreen.aliases: short forms of each answer, as a person might type them (paper: of 1 to 5 words).

Law: every row passes; what is asked for is its list. A list is made, given, of no answer, passed by or
failed, and `alias_state` says which: an empty list never stands for a failure. Work items are the rows, and
beside each row that is asked about, its list, which ends accepted or rejected on its own. Each form that a
rule refused stays in `aliases_refused` with the rule's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.asking import AskingStep
from pipelines.data.config import Share
from pipelines.errors import ConfigError
from pipelines.evergreen.making.alias_rules import sifted
from pipelines.evergreen.making.made import ALIASED, MODEL, carried
from pipelines.evergreen.prompting import Sheet, Turns, as_json, language_name, sheet
from pipelines.evergreen.schema import questions
from pipelines.llm.request import Request, Sampling, seed_of
from pipelines.llm.structured import Structured

SCHEMA = questions("evergreen.aliases", ALIASED)
SHEET = "prompts/aliases.yaml"
MADE, GIVEN, NO_ANSWER, PASSED_BY, FAILED = "made", "given", "no_answer", "passed_by", "failed"


@dataclass(frozen=True)
class Params:
    """sources: whose rows are asked about; limit: how many, 0 for all. fewest, most: forms asked for in a
    list; least: forms that make one. longest: words of a form."""

    backend: str = "embedded"
    model: str = "smollm2-135m"
    style: str = "chat"
    sources: tuple[str, ...] = (MODEL,)
    limit: int = 0
    fewest: int = 3
    most: int = 6
    least: int = 1
    longest: int = 5
    temperature: float = 0.2
    top_p: float = 1.0
    max_tokens: int = 96
    allow_failed: Share = 0.0


def run(step: AskingStep, params: Params) -> None:
    """Tells which rows need a list, asks for these, sifts what came, passes every row."""
    if not 1 <= params.least <= params.fewest <= params.most:
        raise ConfigError("needs 1 <= least <= fewest <= most", where="params.yaml: evergreen.aliases")
    rows = {r["row_id"]: r for r in step.read("evergreen/translate").sort("row_id").iter_rows(named=True)}
    step.plan(rows)
    state = {key: _state(row, params) for key, row in rows.items()}
    asked = [key for key, said in state.items() if said == MADE]
    if params.limit:
        state |= dict.fromkeys(asked[params.limit :], PASSED_BY)
        asked = asked[: params.limit]
    step.plan(_item(key) for key in asked)
    told = sheet(SHEET)
    refused: Counter[str] = Counter()
    for key, end in _ends(step, params, told, [rows[key] for key in asked]).items():
        values, reasons = _settle(step, params, rows[key], end)
        state[key] = values["alias_state"]
        refused.update(reasons)
        rows[key] = {**rows[key], **values, "prompt_hash": told.hash, "used": end.ids}
    for key, row in rows.items():
        values = {"prompt_hash": None, "aliases_refused": [], "alias_state": state[key]}
        own = {c: row.get(c) if key in asked else values[c] for c in values}
        out = SCHEMA.row(**carried(row, ALIASED, **own), parents=[key], responses=row.get("used", ()))
        step.accept(key, out, note=f"aliases {state[key]}")
    step.metrics = {"asked": len(asked), "refused_forms": dict(sorted(refused.items()))}


def _item(key: str) -> str:
    """The work item of a row's list."""
    return f"{key}:aliases"


def _state(row: Mapping[str, Any], params: Params) -> str:
    """Why a row's list is as it is, or MADE where it is to be asked for."""
    if row["aliases"]:
        return GIVEN
    if not row["answer"]:
        return NO_ANSWER
    return MADE if row["source"] in params.sources else PASSED_BY


def _ends(
    step: AskingStep, params: Params, told: Sheet, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Structured]:
    """What was answered for each row, by its id, in the order of the rows."""
    if not rows:
        return {}
    with step.client(params.backend, params.model) as client:
        asked = requests(step, params, told, rows)
        found = {end.request.row: end for end in step.values(client, asked, len(rows))}
    return {row["row_id"]: found[row["row_id"]] for row in rows}


def requests(
    step: AskingStep, params: Params, told: Sheet, rows: Sequence[Mapping[str, Any]]
) -> Iterator[Request]:
    sampling = Sampling(params.max_tokens, params.temperature, params.top_p)
    for row in rows:
        yield Request(
            model=params.model,
            sampling=sampling,
            schema=answer_schema(params.most),
            seed=seed_of(step.seed, f"{step.name}/{row['question_id']}/{row['language']}", 0),
            row=row["row_id"],
            purpose=step.name,
            **turns_of(told, params, row).form(params.style),
        )


def turns_of(told: Sheet, params: Params, row: Mapping[str, Any]) -> Turns:
    """The instruction, two examples in English, the question with its answer."""
    bounds = {"fewest": params.fewest, "most": params.most}
    shots = [
        (
            told.say(
                "ask", question=s["question"], answer=s["answer"], language=language_name("en"), **bounds
            ),
            as_json({"answers": s["answers"][: params.most]}),
        )
        for s in told.parts["shots"]
    ]
    language = language_name(row["language"])
    asked = told.say("ask", question=row["question"], answer=row["answer"], language=language, **bounds)
    return Turns(told.say("instruction"), shots, asked)


def answer_schema(most: int) -> dict[str, Any]:
    """{"answers": ["...", ...]}, one to `most`."""
    answers = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": most}
    return {
        "type": "object",
        "properties": {"answers": answers},
        "required": ["answers"],
        "additionalProperties": False,
    }


def _settle(
    step: AskingStep, params: Params, row: Mapping[str, Any], end: Structured
) -> tuple[dict[str, Any], list[str]]:
    """Ends the list of one row: the columns that it sets, and the reasons of the forms refused."""
    item, parents = _item(row["row_id"]), [row["row_id"]]
    if not end.ok:
        step.settle_unread(item, end, parents=parents)
        return {"aliases": [], "alias_state": FAILED, "aliases_refused": []}, []
    kept, out = sifted(
        end.value["answers"], row["question"], row["answer"], row["language"],
        longest=params.longest, most=params.most,
    )  # fmt: skip
    why = [f"{found.reason}: {text}" for text, found in out]
    reasons = [found.reason for _, found in out]
    if len(kept) < params.least:
        detail = f"{len(kept)} of {params.least} stand; {'; '.join(why)}"
        step.reject(
            item, "too_few", detail=detail, raw=as_json(end.value["answers"]), parents=parents,
            responses=end.ids,
        )  # fmt: skip
        return {"aliases": [], "alias_state": FAILED, "aliases_refused": why}, reasons
    step.accept(item, note=f"aliases in {row['language']}")
    return {"aliases": kept, "alias_state": MADE, "aliases_refused": why}, reasons
