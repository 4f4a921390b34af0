"""evergreen.synthesize: what the train split lacks of each change rate, by templates and by the model.

Law: the balance is a target in both directions: whichever rate is short is made, evergreen or mutable, and
nothing is left out to reach it. A work item is a slot of one request of the model (its k-th pair) or one
question of a template; each ends accepted or with the rule that said no. What the model's candidates leave
open is filled by templates, whose labels a rule gives, so that a set is balanced without any model too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.asking import AskingStep
from pipelines.data.config import Share
from pipelines.data.duplicates import question_key
from pipelines.data.rows import digest
from pipelines.errors import ConfigError
from pipelines.evergreen.making.candidates import RATES, Rules, by_turns, capped, fault, missing
from pipelines.evergreen.making.made import MODEL, SYNTHESIZED, TEMPLATE
from pipelines.evergreen.prompting import Sheet, Turns, as_json, language_name, sheet
from pipelines.evergreen.schema import EVERGREEN, FAST, MUTABLE, NEVER, SLOW, TRAIN, labelled, questions
from pipelines.evergreen.templates.filling import Made, draw, load, supply
from pipelines.llm.request import Request, Sampling, seed_of
from pipelines.llm.structured import Structured

SCHEMA = questions("evergreen.synthesize", SYNTHESIZED)
SHEET = "prompts/synthesize.yaml"
WHERE = "params.yaml: evergreen.synthesize"
REPLY = "reply"  # the key of an answer, after "question" in the alphabet: see the sheet


@dataclass(frozen=True)
class Params:
    """balance: share of train by change rate. questions: wanted in train, 0 for as many as the fullest
    rate asks for. most: made at most, 0 for no cap. by_model: share of what lacks that is asked of the
    model, over again by `ask_over`. per_answer: pairs asked in one answer. languages: of the templates;
    the model writes in the first."""

    backend: str = "embedded"
    model: str = "smollm2-135m"
    style: str = "chat"
    languages: tuple[str, ...] = ("en",)
    balance: dict[str, float] = field(default_factory=lambda: {NEVER: 0.5, SLOW: 0.25, FAST: 0.25})
    questions: int = 0
    most: int = 0
    by_model: Share = 0.5
    ask_over: float = 1.0
    per_answer: int = 3
    topics: tuple[str, ...] = ("history", "science", "sport", "economy")
    candidates: tuple[str, ...] = ("en", "fr", "de")
    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 256
    longest_question: int = 160
    longest_answer: int = 120
    allow_failed: Share = 0.0


@dataclass(frozen=True)
class Ask:
    """One request: `number` pairs on a topic, of a change rate; its `sample`-th on that topic."""

    rate: str
    topic: str
    sample: int
    number: int

    @property
    def key(self) -> str:
        return f"{self.rate}/{self.topic}#{self.sample}"

    @property
    def items(self) -> list[str]:
        """A work item for each pair asked."""
        return [f"{self.key}:{slot}" for slot in range(self.number)]


def run(step: AskingStep, params: Params) -> None:
    """Counts train, asks the model for its share of what lacks, fills the rest from templates."""
    check(params)
    ingested = step.read("evergreen/ingest")
    have = Counter(labelled(ingested).filter(split=TRAIN).unique("question_id")["change_rate"].to_list())
    lacking = capped(missing(have, params.balance, params.questions), params.most)
    taken = set(map(question_key, ingested["question"].to_list()))
    asks = requests_of(lacking, params)
    step.plan(item for ask in asks for item in ask.items)
    accepted = _by_model(step, params, asks, taken)
    left = {rate: max(0, lacking[rate] - accepted[rate]) for rate in RATES}
    drawn = _by_template(step, params, left, taken)
    step.metrics = {
        "train_before": {r: have[r] for r in sorted(have)},
        "lacking": lacking,
        "by_model": {r: accepted[r] for r in RATES},
        "by_template": drawn,
    }


def check(params: Params) -> None:
    """Raises ConfigError for what cannot be asked."""
    for name in ("languages", "topics"):
        if not getattr(params, name):
            raise ConfigError("must not be empty", where=f"{WHERE}.{name}")
    if params.per_answer < 1 or params.ask_over < 1:
        raise ConfigError("per_answer and ask_over must be at least 1", where=WHERE)


def requests_of(lacking: Mapping[str, int], params: Params) -> list[Ask]:
    """The requests for the model's share: topics take turns, rate by rate."""
    asks = []
    for rate in RATES:
        pairs = round(lacking[rate] * params.by_model * params.ask_over)
        for number in range(-(-pairs // params.per_answer)):
            topic, sample = by_turns(params.topics, number)
            asks.append(Ask(rate, topic, sample, params.per_answer))
    return asks


def _by_model(step: AskingStep, params: Params, asks: Sequence[Ask], taken: set[str]) -> Counter[str]:
    """Asks, then settles in the order planned, so that of two equal questions always the same one stays."""
    if not asks:
        return Counter()
    told = sheet(SHEET)
    with step.client(params.backend, params.model) as client:
        ends = {
            end.request.row: end for end in step.values(client, requests(step, params, told, asks), len(asks))
        }
    accepted: Counter[str] = Counter()
    for ask in asks:
        rules = rules_of(params, told, ask)
        accepted[ask.rate] += sum(_settle(step, ask, ends[ask.key], rules, taken, told.hash))
    return accepted


def requests(step: AskingStep, params: Params, told: Sheet, asks: Sequence[Ask]) -> Iterator[Request]:
    sampling = Sampling(params.max_tokens, params.temperature, params.top_p)
    for ask in asks:
        turns = turns_of(told, ask, params.languages[0])
        yield Request(
            model=params.model,
            sampling=sampling,
            schema=answer_schema(ask.number),
            sample=ask.sample,
            seed=seed_of(step.seed, f"{step.name}/{ask.rate}/{ask.topic}", ask.sample),
            row=ask.key,
            purpose=step.name,
            **turns.form(params.style),
        )


def turns_of(told: Sheet, ask: Ask, language: str) -> Turns:
    """The instruction, one example of the rate on another topic, the question."""
    shown = told.parts["examples"][ask.rate]
    values = {
        "number": ask.number,
        "language": language_name(language),
        "rate": told.parts["rates"][ask.rate].strip(),
    }
    example = told.say("ask", topic=shown["topic"], **values | {"language": language_name("en")})
    answer = as_json({"pairs": shown["pairs"][: ask.number]})
    return Turns(told.say("instruction"), [(example, answer)], told.say("ask", topic=ask.topic, **values))


def answer_schema(number: int) -> dict[str, Any]:
    text = {"type": "string"}
    pair = {
        "type": "object",
        "properties": {"question": text, REPLY: text},
        "required": ["question", REPLY],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"pairs": {"type": "array", "items": pair, "minItems": 1, "maxItems": number}},
        "required": ["pairs"],
        "additionalProperties": False,
    }


def rules_of(params: Params, told: Sheet, ask: Ask) -> Rules:
    """What the candidates of one request are held against: all that it showed and said."""
    turns = turns_of(told, ask, params.languages[0])
    shown = [pair["question"] for e in told.parts["examples"].values() for pair in e["pairs"]]
    return Rules(
        language=params.languages[0],
        candidates=tuple(sorted({*params.candidates, *params.languages})),
        shown=frozenset(map(question_key, shown)),
        prompt=f"{turns.instruction} {turns.asked}",
        longest_question=params.longest_question,
        longest_answer=params.longest_answer,
    )


def _settle(
    step: AskingStep, ask: Ask, end: Structured, rules: Rules, taken: set[str], prompt_hash: str
) -> Iterator[int]:
    """Ends each slot of one request; yields 1 for each that was accepted."""
    if not end.ok:
        for item in ask.items:
            step.settle_unread(item, end)
        return
    pairs = end.value["pairs"]
    for item, pair in zip(ask.items, [*pairs, *[None] * (ask.number - len(pairs))], strict=True):
        if pair is None:
            step.reject(item, "not_given", detail=f"{len(pairs)} of {ask.number} pairs", responses=end.ids)
            continue
        question, answer = (" ".join(pair[k].split()) for k in ("question", REPLY))
        found, key = fault(question, answer, ask.rate, rules), question_key(question)
        reason, detail = ("", "") if found is None else (found.reason, found.detail)
        if found is None and key in taken:
            reason, detail = "duplicate", "asked by another row"
        if reason:
            raw = as_json({"question": question, "answer": answer})
            step.reject(item, reason, detail=detail, raw=raw, responses=end.ids)
            continue
        taken.add(key)
        row = row_of(
            rules.language, question, answer, ask.rate,
            id_of=("model", rules.language, question), source=MODEL, origin="model", topic=ask.topic,
            template=None, prompt_hash=prompt_hash, responses=end.ids,
        )  # fmt: skip
        step.accept(item, row, note=f"{ask.rate} by model")
        yield 1


def _by_template(
    step: AskingStep, params: Params, left: Mapping[str, int], taken: set[str]
) -> dict[str, int]:
    """Questions of templates for what is left, none equal to one that is there. One item a question."""
    bank = load()
    most = supply(bank, params.languages)
    wanted = {rate: min(left[rate], most[rate]) for rate in RATES}
    made = draw(bank, wanted=wanted, languages=params.languages, seed=step.seed, avoid=taken)
    names = Counter[str]()
    for one in made:
        item = f"{one.template}#{names[one.template]}"
        names[one.template] += 1
        step.plan([item])
        step.accept(item, *rows_of(one), note=f"{one.change_rate} by template")
    return {rate: sum(one.change_rate == rate for one in made) for rate in RATES}


def rows_of(one: Made) -> list[dict[str, Any]]:
    """A row for each wording of a template's question."""
    wordings = sorted(one.wordings.items())
    return [
        row_of(
            language, wording, one.answers.get(language), one.change_rate,
            id_of=("template", one.template, wordings), source=TEMPLATE, origin="gold", topic=one.topic,
            template=one.template, prompt_hash=None, responses=(),
        )
        for language, wording in wordings
    ]  # fmt: skip


def row_of(
    language: str,
    question: str,
    answer: str | None,
    rate: str,
    *,
    id_of: Sequence[Any],
    source: str,
    origin: str,
    topic: str,
    template: str | None,
    prompt_hash: str | None,
    responses: Sequence[str],
) -> dict[str, Any]:
    """A row of train. No answer of it has a date: nobody saw it hold."""
    return SCHEMA.row(
        question_id=digest("question", *id_of),
        language=language,
        question=question,
        answer=answer,
        aliases=[],
        label=EVERGREEN if rate == NEVER else MUTABLE,
        change_rate=rate,
        source=source,
        split=TRAIN,
        label_origin=origin,
        as_of=None,
        topic=topic,
        template=template,
        prompt_hash=prompt_hash,
        responses=responses,
    )
