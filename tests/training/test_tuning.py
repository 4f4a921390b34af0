"""Fine-tuning on an encoder of a few thousand weights: what it learns, that it stays itself."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.errors import ConfigError, InputError, StageError
from pipelines.evergreen.eg_e5 import encoder as bert
from pipelines.evergreen.eg_e5.bag import BagRecipe, fit_bag
from pipelines.evergreen.eg_e5.calibration import Mix
from pipelines.evergreen.eg_e5.classifier import Classifier, load
from pipelines.evergreen.eg_e5.encoder_folder import in_folder
from pipelines.evergreen.eg_e5.head import HeadRecipe, fit_head
from pipelines.evergreen.eg_e5.hidden import Below
from pipelines.evergreen.eg_e5.tuned import FILES
from pipelines.training import tuning
from pipelines.training.examples import in_turn
from pipelines.training.tuning import Shown, Tuner, Tuning, batches_of, losses, schedule
from tests.training.tiny_encoder import make

RECIPE = Tuning("finetuned", layers=2, epochs=12, batch=4, tokens=12, learning_rate=3e-3, dropout=0.0)
MOVING = ["how old is he now", "how old is he", "he is how old now"]
FIXED = ["who wrote the book", "qui a écrit the book", "who wrote"]


@contextmanager
def unseen(what: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda more: None


def shown(order: int = 1) -> Shown:
    texts, questions = (MOVING + FIXED)[::order], [f"m{i}" for i in range(3)] + [f"f{i}" for i in range(3)]
    labels = np.array([0, 0, 0, 1, 1, 1])[::order]
    return Shown(texts, questions[::order], labels, np.ones(6))


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Below:
    return Below(in_folder(make(tmp_path_factory.mktemp("bert"))), 1, "query: ", 12)


def tuner(below: Below, kept: Path | None = None, recipe: Tuning = RECIPE) -> Tuner:
    return Tuner(recipe, below, kept, unseen)


def content(net: bert.Weights) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in net.items()}


def test_it_learns_to_tell_the_two_forms_apart(below: Below) -> None:
    margins = tuner(below).fit(shown(), 1).margins([*MOVING, *FIXED])
    assert (margins[:3] < 0).all() and (margins[3:] > 0).all()


def test_a_heavier_class_is_the_class_that_was_meant(below: Below) -> None:
    """Weights follow the label, not its rank: rows of label 0 made heavy pull all towards mutable."""
    rows = shown()
    heavy = Shown(rows.texts, rows.questions, rows.evergreen, np.where(rows.evergreen == 0, 20.0, 0.05))
    recipe = Tuning("finetuned", layers=2, epochs=2, batch=4, tokens=12, dropout=0.0)
    light = tuner(below, recipe=recipe).fit(rows, 1).margins(FIXED).mean()
    assert tuner(below, recipe=recipe).fit(heavy, 1).margins(FIXED).mean() < light


def test_equal_rows_and_seed_train_equal_bytes_and_another_seed_does_not(below: Below) -> None:
    one, two, other = (tuner(below).fit(shown(), s).networks[0] for s in (1, 1, 2))
    assert content(one) == content(two)
    assert content(one) != content(other)


def test_training_leaves_torchs_own_draws_alone(below: Below) -> None:
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    recipe = Tuning("finetuned", layers=2, epochs=1, batch=4, tokens=12)
    tuner(below, recipe=recipe).fit(shown(), 1)
    assert torch.equal(torch.rand(3), expected)


def test_a_fit_is_kept_and_found_again(below: Below, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tuner(below, tmp_path).fit(shown(), 1)
    monkeypatch.setattr(tuning, "train", lambda *_: pytest.fail("trained again"))
    again = tuner(below, tmp_path).fit(shown(), 1)
    assert content(first.networks[0]) == content(again.networks[0])
    with pytest.raises(pytest.fail.Exception):
        tuner(below, tmp_path).fit(shown(), 2)


@pytest.mark.parametrize("damage", ["torn", "misshapen", "no number"])
def test_a_kept_fit_that_cannot_be_used_is_made_anew(below: Below, tmp_path: Path, damage: str) -> None:
    safetensors: Any = importlib.import_module("safetensors.torch")
    first = tuner(below, tmp_path).fit(shown(), 1)
    (kept,) = (tmp_path / "fits").glob("*.safetensors")
    whole = kept.read_bytes()
    if damage == "torn":
        kept.write_bytes(whole[:-100])
    else:
        weights = safetensors.load_file(kept)
        weights["head.weight"] = (
            weights["head.weight"][:1] if damage == "misshapen" else weights["head.weight"] / 0
        )
        safetensors.save_file({n: t.clone() for n, t in weights.items()}, kept)
    again = tuner(below, tmp_path).fit(shown(), 1)
    assert content(first.networks[0]) == content(again.networks[0])
    assert kept.read_bytes() == whole


def fitted_beside(below: Below, kept: Path, die_after: int | None) -> None:
    """Two networks fitted in a process of their own, which kills itself within a step of the second."""
    done = 0

    @contextmanager
    def dying(what: str, total: int) -> Iterator[Callable[[int], None]]:
        def count(more: int) -> None:
            nonlocal done
            done += what.startswith("steps")
            if done == die_after:
                os.kill(os.getpid(), signal.SIGKILL)

        yield count

    Tuner(Tuning(**{**vars(RECIPE), "networks": 2}), below, kept, dying).fit(shown(), 1)


@pytest.mark.parametrize("die_after", [None, 30])
def test_fits_of_two_at_once_and_of_a_killed_one_are_whole(
    below: Below, tmp_path: Path, die_after: int | None
) -> None:
    """12 epochs of 2 batches a network: one that is killed at step 30 was in its second."""
    both = Tuning(**{**vars(RECIPE), "networks": 2})
    alone = tuner(below, recipe=both).fit(shown(), 1)
    context = multiprocessing.get_context("fork")
    beside = [context.Process(target=fitted_beside, args=(below, tmp_path, die_after)) for _ in range(2)]
    for process in beside:
        process.start()
    for process in beside:
        process.join(120)
    assert [p.exitcode for p in beside] == [0 if die_after is None else -signal.SIGKILL] * 2
    assert len(list((tmp_path / "fits").glob("*.safetensors"))) == (2 if die_after is None else 1)
    again = tuner(below, tmp_path, both).fit(shown(), 1)
    assert [content(n) for n in again.networks] == [content(n) for n in alone.networks]


def test_several_networks_are_averaged(below: Below) -> None:
    both = tuner(below, recipe=Tuning(**{**vars(RECIPE), "networks": 2})).fit(shown(), 1)
    apart = [type(both)(below, (net,)).margins(FIXED) for net in both.networks]
    np.testing.assert_allclose(both.margins(FIXED), (apart[0] + apart[1]) / 2, atol=1e-5)
    assert not np.array_equal(apart[0], apart[1])


def test_the_margin_of_a_question_is_its_own_whatever_stands_beside_it(below: Below) -> None:
    model = tuner(below).fit(shown(), 1)
    together = model.margins([*MOVING, *FIXED])
    assert together.tolist() == model.margins([*MOVING, *FIXED][::-1])[::-1].tolist()
    assert together.tolist() == [model.margins([t])[0] for t in [*MOVING, *FIXED]]


def test_the_kept_classifier_predicts_the_bits_of_the_trained(below: Below, tmp_path: Path) -> None:
    layers = tuner(below).fit(shown(), 1)
    texts, labels = [*MOVING, *FIXED], np.array([0, 0, 0, 1, 1, 1])
    vectors = np.random.default_rng(1).normal(size=(6, 8))
    bag = fit_bag(BagRecipe(), texts, ["en"] * 6, labels, np.ones(6))
    head = fit_head(HeadRecipe(1, 4, 1, 1), vectors, labels, np.ones(6), 1)
    mix = Mix({"bag": 0.2, "head": 0.3, "encoder": 0.5})
    model = Classifier(bag, head, mix, {}, layers)
    model.save(tmp_path)
    kept = load(tmp_path)
    fresh = ["who is he", "how old is the book now"]
    parts = kept.parts(fresh, ["en", "en"], lambda t: vectors[: len(t)])
    assert set(parts) == {"bag", "head", "encoder", "ensemble"}
    expected = model.parts(fresh, ["en", "en"], lambda t: vectors[: len(t)])
    assert {n: p.tolist() for n, p in parts.items()} == {n: p.tolist() for n, p in expected.items()}
    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert {*FILES, "encoder/config.json", "encoder/tokenizer.json", "encoder/model.safetensors"} <= names


@pytest.mark.parametrize("damage", ["tuned.json", "tuned.safetensors", "encoder", "shape"])
def test_damaged_layers_are_one_clear_error(below: Below, tmp_path: Path, damage: str) -> None:
    from pipelines.evergreen.eg_e5 import tuned

    tuner(below).fit(shown(), 1).save(tmp_path)
    if damage == "encoder":
        (tmp_path / "encoder" / "config.json").unlink()
    elif damage == "shape":
        safetensors: Any = importlib.import_module("safetensors.torch")
        flat = safetensors.load_file(tmp_path / FILES[1])
        flat["0.head.bias"] = flat["0.head.bias"][:1].clone()
        safetensors.save_file(flat, tmp_path / FILES[1])
    else:
        (tmp_path / damage).write_bytes((tmp_path / damage).read_bytes()[:20])
    with pytest.raises(InputError):
        tuned.load(tmp_path)


def test_each_epoch_shows_every_question_once_and_all_its_wordings_in_turn() -> None:
    turns = [[2, 0, 1], [4, 5, 3], [6]]
    epochs = schedule(Tuning(epochs=3, wordings=1), turns, 0, 1)
    assert [sorted(e.tolist()) for e in epochs] == [[2, 4, 6], [0, 5, 6], [1, 3, 6]]
    two = schedule(Tuning(epochs=2, wordings=2), turns, 0, 1)
    assert [sorted(e.tolist()) for e in two] == [[0, 2, 4, 5, 6], [1, 2, 3, 4, 6]]
    second = schedule(Tuning(epochs=1, wordings=1), turns, 1, 1)
    assert sorted(second[0].tolist()) == [0, 5, 6]


def test_what_a_question_shows_when_is_its_own() -> None:
    texts = [f"text {i}" for i in range(9)]
    alone = in_turn(["a"] * 3, texts[:3], 7)
    beside = in_turn(["a"] * 3 + ["b"] * 6, texts, 7)
    assert alone["a"] == beside["a"]
    assert sorted(beside["b"]) == [3, 4, 5, 6, 7, 8]
    assert in_turn(["a"] * 3, texts[:3], 8) != alone or in_turn(["a"] * 3, texts[:3], 9) != alone


def test_a_batch_holds_near_equal_lengths_and_an_epoch_is_whole() -> None:
    lengths = np.arange(40.0) % 20 + 3
    batches = batches_of(np.arange(40), lengths, 8, 1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(40))
    assert max(np.ptp(lengths[b]) for b in batches) <= 8  # alone they would differ by 19


def test_the_focal_loss_takes_the_unweighted_probability() -> None:
    """p .8, weight 1.05, gamma 2, alpha .25: 1.05 x .0022314; as published .0025556 (facts 2.5)."""
    torch: Any = importlib.import_module("torch")
    out = torch.tensor([[0.0, math.log(0.8 / 0.2)]], dtype=torch.float64)
    loss = losses(out, torch.tensor([1]), 2.0)
    assert 0.25 * float(loss) == pytest.approx(0.0022314, abs=5e-8)
    assert 1.05 * 0.25 * float(loss) == pytest.approx(0.0023430, abs=5e-8)
    assert float(losses(out, torch.tensor([1]), 0.0)) == pytest.approx(-math.log(0.8))


def test_one_label_alone_is_refused(below: Below) -> None:
    rows = Shown(FIXED, ["a", "b", "c"], np.ones(3, int), np.ones(3))
    with pytest.raises(StageError, match="has only: evergreen"):
        tuner(below).fit(rows, 1)


def test_a_rate_that_leads_astray_is_one_error_and_keeps_nothing(below: Below, tmp_path: Path) -> None:
    astray = tuner(below, tmp_path, Tuning(**{**vars(RECIPE), "learning_rate": 1e6}))
    with pytest.raises(StageError, match="holds what is no number of 16 bits .lower .*learning_rate"):
        astray.fit(shown(), 1)
    assert not (tmp_path / "fits").exists()


def test_more_layers_than_the_encoder_has_are_refused(tmp_path: Path) -> None:
    make(tmp_path / tuning.ENCODERS / "e5")
    with pytest.raises(ConfigError, match="the encoder has 3 layers, 4 cannot be trained"):
        tuning.tuner(Tuning("finetuned", path="e5", layers=4), tmp_path, unseen)


def test_more_tokens_than_the_encoder_has_places_for_are_refused(tmp_path: Path) -> None:
    make(tmp_path / tuning.ENCODERS / "e5", "xlm-roberta")
    with pytest.raises(ConfigError, match="the encoder has places for 38 tokens, 39 cannot be shown"):
        tuning.tuner(Tuning("finetuned", path="e5", layers=1, tokens=39), tmp_path, unseen)
    assert tuning.tuner(Tuning("finetuned", path="e5", layers=1, tokens=38), tmp_path, unseen)


@pytest.mark.parametrize("name", ["e6", "../../e5", "e5/config.json"])
def test_an_encoder_that_is_no_input_of_the_graph_is_refused(tmp_path: Path, name: str) -> None:
    make(tmp_path / "data/e5")
    make(tmp_path / tuning.ENCODERS / "e5")
    with pytest.raises(ConfigError, match=f"no folder '{name}' below data/raw/encoders .put it there"):
        tuning.tuner(Tuning("finetuned", path=name), tmp_path, unseen)


def test_a_frozen_encoder_takes_no_folder() -> None:
    with pytest.raises(ConfigError, match=r"encoder.path: .* for fine-tuning alone.* .set kind: finetuned"):
        Tuning("frozen", path="e5")


def test_a_frozen_encoder_needs_no_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bert, "need", pytest.fail)
    assert tuning.tuner(Tuning(), tmp_path, unseen) is None


@pytest.mark.parametrize("wrong", [{"kind": "warm"}, {"layers": 0}, {"tokens": 3}, {"dropout": 1.0}])
def test_an_impossible_recipe_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Tuning(**wrong)
