"""The gate of TRIT's reward table: groups whole, rewards lawful, no translation from nowhere.

Law: what the table says of a row is counted again from the row itself; nothing
that the step already concluded is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from pipelines.data.language import lost_numbers
from pipelines.gates.suite import Expect, Suite

TOLERANCE = 1e-6


def measures(rows: pl.DataFrame) -> Mapping[str, float]:
    """Counts of what must not be. An empty table has none of it."""
    translations = rows.filter(pl.col("kind") == "translation")
    responses = rows.filter(pl.col("kind") == "reasoning")
    valid = translations.filter("valid")
    lawful = (
        pl.when(pl.col("kind") == "translation")
        .then(pl.col("reward").is_in([0.0, 1.0]))
        .otherwise(pl.col("reward").is_in([0.0, 0.1, 1.0]))
    )
    return {
        "groups_broken": _broken_groups(rows),
        "members_doubled": int(rows["member"].is_duplicated().sum()),
        "rewards_unlawful": len(rows.filter(~lawful.fill_null(False))),
        "rewards_not_deferred": _not_deferred(translations, responses),
        "invalid_rewarded": len(rows.filter(~pl.col("valid") & (pl.col("reward") != 0))),
        "advantages_wrong": _wrong_advantages(rows),
        "trainable_wrong": _wrongly_trainable(rows),
        "without_response": len(valid.filter(pl.col("responses").list.len() == 0)),
        "numbers_lost": _numbers_lost(valid.iter_rows(named=True)),
        "copies": len(valid.filter(_same_text("text", "english"))),
        "responses_orphaned": _orphans(translations, responses),
    }


def _orphans(translations: pl.DataFrame, responses: pl.DataFrame) -> int:
    """Responses to no valid translation, of problems whose translations are in the table."""
    here = responses.join(translations, on="problem_key", how="semi")
    return len(here.join(translations.filter("valid"), left_on="group_id", right_on="member", how="anti"))


def _same_text(one: str, other: str) -> pl.Expr:
    return (
        pl.col(one).str.strip_chars().str.to_lowercase() == pl.col(other).str.strip_chars().str.to_lowercase()
    )


def _broken_groups(rows: pl.DataFrame) -> int:
    """Groups whose samples are not 0 .. size-1, each once, of one problem, kind, language and size."""
    size = pl.col("group_size").first()
    whole = (
        (pl.len() == size)
        & (pl.col("sample").n_unique() == size)
        & (pl.col("sample").min() == 0)
        & (pl.col("sample").max() == size - 1)
    )
    one = pl.lit(True)
    for name in ("problem_key", "language", "group_size", "trainable"):
        one = one & (pl.col(name).n_unique() == 1)
    groups = rows.group_by("kind", "group_id").agg((whole & one).alias("whole"))
    # A group per problem and language; a second one of the same key would be a stride error.
    keys = rows.filter(pl.col("kind") == "translation").group_by("problem_key", "language")
    split = keys.agg(pl.col("group_id").n_unique().alias("groups")).filter(pl.col("groups") > 1)
    return len(groups.filter(~pl.col("whole"))) + len(split)


def _not_deferred(translations: pl.DataFrame, responses: pl.DataFrame) -> int:
    """Translations whose reward is not 1 iff Acc > 0; responses that tell another Acc than their own's."""
    due = pl.when(pl.col("valid")).then(pl.col("acc") > 0).otherwise(False).fill_null(False)
    wrong = len(translations.filter(due != (pl.col("reward") == 1)))
    told = responses.join(
        translations.select("member", pl.col("acc").alias("own")), left_on="group_id", right_on="member"
    )
    return wrong + len(told.filter(pl.col("acc").ne_missing(pl.col("own"))))


def _wrong_advantages(rows: pl.DataFrame) -> int:
    """Rows whose advantage is not (r - mean) / (sample std + 1e-6) of their group, 0 where all are equal."""
    over = ["kind", "group_id"]
    mean, deviation = (
        pl.col("reward").mean().over(over),
        pl.col("reward").std(ddof=1).over(over).fill_null(0.0),
    )
    due = pl.when(deviation > TOLERANCE).then((pl.col("reward") - mean) / (deviation + 1e-6)).otherwise(0.0)
    return len(rows.filter((pl.col("advantage") - due).abs() > TOLERANCE))


def _wrongly_trainable(rows: pl.DataFrame) -> int:
    """Rows marked trainable in a group of equal rewards, or with a translation that nobody solved."""
    equal = pl.col("reward").n_unique().over("kind", "group_id") == 1
    unsolved = (pl.col("kind") == "reasoning") & ~(pl.col("acc") > 0).fill_null(False)
    return len(rows.filter(pl.col("trainable") & (equal | unsolved)))


def _numbers_lost(rows: Iterable[Mapping[str, str]]) -> int:
    return sum(bool(lost_numbers(r["english"], r["text"], r["language"])) for r in rows)


def _none(measure: str, meaning: str) -> Expect:
    return Expect(measure, meaning, low=0, high=0)


SUITE = Suite(
    "trit.feedback",
    measures,
    (
        _none("groups_broken", "every group has its K or G members, each once, under one key"),
        _none("members_doubled", "no translation or response is in two groups"),
        _none("rewards_unlawful", "rewards are 0 or 1 for translations, 0, 0.1 or 1 for responses"),
        _none("rewards_not_deferred", "a translation has reward 1 exactly when a rollout solved it"),
        _none("invalid_rewarded", "what a check refused has reward 0"),
        _none("advantages_wrong", "advantages are those of their own group"),
        _none("trainable_wrong", "only groups of mixed rewards train"),
        _none("without_response", "every accepted translation is a model's stored answer"),
        _none("numbers_lost", "every number of the English is in each accepted translation"),
        _none("copies", "no accepted translation is the English itself"),
        _none("responses_orphaned", "every response answers an accepted translation of this table"),
    ),
)
