"""The evergreen classifier as a thing: what it learns, how it is kept, that it stays itself."""

from __future__ import annotations

import hashlib
import json
import pickletools
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import InputError, StageError
from pipelines.evergreen.eg_e5.calibration import Mix, sigmoid
from pipelines.evergreen.eg_e5.classifier import (
    BagRecipe,
    Classifier,
    HeadRecipe,
    averaged,
    fit_bag,
    fit_head,
    load,
    ngrams,
)

QUESTIONS = [f"How old is person {i} now?" for i in range(20)] + [f"Who wrote book {i}?" for i in range(20)]
LANGUAGES = ["en"] * 40
LABELS = np.array([0] * 20 + [1] * 20)
ONES = np.ones(40)


def embed(texts: list[str]) -> np.ndarray:
    """Unit vectors [n, 8] drawn from a hash of each text; "wrote" shows in the first axis."""
    rows = []
    for text in texts:
        rng = np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:8], 16))
        row = rng.normal(size=8)
        row[0] += 3.0 if "wrote" in text else -3.0
        rows.append(row / np.linalg.norm(row))
    return np.array(rows, dtype=np.float32)


def trained(seed: int = 1) -> Classifier:
    bag = fit_bag(BagRecipe(), QUESTIONS, LANGUAGES, LABELS, ONES)
    recipe = HeadRecipe(networks=2, hidden=16, alpha=0.1)
    head = fit_head(recipe, embed(QUESTIONS), LABELS, ONES, seed)
    return Classifier(bag, head, Mix({"bag": 0.25, "head": 0.75}, 0.1, 0.6), {"bag": Mix({"bag": 2.0}, -0.3)})


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_it_tells_unseen_questions_of_the_two_forms_apart() -> None:
    p = trained().predict(["How old is person 77 now?", "Who wrote book 77?"], ["en", "en"], embed)
    assert p[0] < 0.5 < p[1]


def test_the_ensemble_mixes_log_odds_at_its_prior_and_a_part_alone_has_a_mix_of_its_own() -> None:
    model = trained()
    z = model.margins(QUESTIONS, LANGUAGES, embed)
    parts = model.parts(QUESTIONS, LANGUAGES, embed)
    mixed = 0.25 * z["bag"] + 0.75 * z["head"] + 0.1 + np.log(0.6 / 0.4)
    np.testing.assert_allclose(parts["ensemble"], sigmoid(mixed), atol=1e-12)
    np.testing.assert_allclose(parts["bag"], sigmoid(2.0 * z["bag"] - 0.3), atol=1e-12)
    np.testing.assert_allclose(parts["head"], model.head.predict(embed(QUESTIONS)), atol=1e-6)
    np.testing.assert_array_equal(parts["ensemble"], model.predict(QUESTIONS, LANGUAGES, embed))
    assert ((parts["ensemble"] >= 0) & (parts["ensemble"] <= 1)).all()


def test_the_wordings_of_a_question_share_their_mean_in_any_order() -> None:
    p, ids = np.array([0.9, 0.2, 0.4, 0.7]), ["a", "b", "a", "b"]
    np.testing.assert_allclose(averaged(p, ids), [0.65, 0.45, 0.65, 0.45])
    order = [2, 3, 1, 0]
    assert averaged(p[order], [ids[i] for i in order]).tolist() == averaged(p, ids)[order].tolist()


def test_the_loaded_classifier_predicts_the_bits_of_the_trained(tmp_path: Path) -> None:
    model = trained()
    model.save(tmp_path / "model")
    fresh = ["How many stars are there?", "谁写了这本书？", ""]
    languages = ["en", "zh", "fr"]
    np.testing.assert_array_equal(
        load(tmp_path / "model").predict(fresh, languages, embed), model.predict(fresh, languages, embed)
    )


def test_equal_input_trains_equal_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        trained(seed).save(tmp_path / name)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert files(tmp_path / "a") != files(tmp_path / "c")


def test_the_model_folder_holds_no_pickle(tmp_path: Path) -> None:
    trained().save(tmp_path)
    assert sorted(files(tmp_path)) == ["arrays.npz", "model.json", "vocabulary.json"]
    with zipfile.ZipFile(tmp_path / "arrays.npz") as arrays:
        for name in arrays.namelist():
            with arrays.open(name) as f:
                version = np.lib.format.read_magic(f)
                assert version == (1, 0)
                _, _, dtype = np.lib.format.read_array_header_1_0(f)
            assert not dtype.hasobject, name
    for name, content in files(tmp_path).items():
        with pytest.raises(ValueError):
            list(pickletools.genops(content))
        assert b"sklearn" not in content, name


def test_arrays_that_would_need_unpickling_are_refused(tmp_path: Path) -> None:
    trained().save(tmp_path)
    with np.load(tmp_path / "arrays.npz") as f:
        arrays = dict(f)
    arrays["idf"] = np.array([object()], dtype=object)
    np.savez(tmp_path / "arrays.npz", **arrays)
    with pytest.raises(InputError, match="not a readable classifier"):
        load(tmp_path)


def test_a_folder_without_a_model_says_which_stage_makes_it(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"headrace run training\.evergreen"):
        load(tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "format", "vocabulary", "shapes", "no number", "part"])
def test_a_damaged_model_is_one_clear_error(tmp_path: Path, damage: str) -> None:
    trained().save(tmp_path)
    if damage == "truncated":
        content = (tmp_path / "arrays.npz").read_bytes()
        (tmp_path / "arrays.npz").write_bytes(content[: len(content) // 2])
    elif damage == "format":
        about = json.loads((tmp_path / "model.json").read_text())
        (tmp_path / "model.json").write_text(json.dumps({**about, "format": 99}))
    elif damage == "part":  # its fine-tuned layers are gone
        about = json.loads((tmp_path / "model.json").read_text())
        about["mix"]["weights"]["encoder"] = 0.5
        (tmp_path / "model.json").write_text(json.dumps(about))
    elif damage in ("shapes", "no number"):
        with np.load(tmp_path / "arrays.npz") as f:
            arrays = dict(f)
        arrays["w2"] = arrays["w2"][:, :3] if damage == "shapes" else arrays["w2"] * np.nan
        np.savez(tmp_path / "arrays.npz", **arrays)
    else:
        (tmp_path / "vocabulary.json").write_text('["a"]')
    with pytest.raises(InputError, match="not a readable classifier"):
        load(tmp_path)


def test_embeddings_of_another_size_are_refused() -> None:
    with pytest.raises(StageError, match="wants embeddings of 8, got 3"):
        trained().predict(["x"], ["en"], lambda texts: np.ones((len(texts), 3)))


def test_no_questions_give_no_answers_and_embed_nothing() -> None:
    def never(texts: list[str]) -> np.ndarray:
        raise AssertionError(texts)

    assert trained().predict([], [], never).shape == (0,)


def test_training_on_one_label_is_refused_by_name() -> None:
    with pytest.raises(StageError, match="has only: evergreen"):
        fit_bag(BagRecipe(), ["a b", "a b"], ["en", "en"], np.array([1, 1]), np.ones(2))


def test_ngrams_are_pieces_of_words_and_words_under_their_language() -> None:
    found = list(ngrams(BagRecipe(char_from=2, char_to=3, word_to=2), "Ab ＣＤ", "de"))
    pieces = ["c a", "cab", "cb ", "c ab", "cab ", "c c", "ccd", "cd ", "c cd", "ccd "]
    assert sorted(found) == sorted([*pieces, "wde:ab", "wde:cd", "wde:ab cd"])


def test_few_rows_are_seen_more_often() -> None:
    recipe = HeadRecipe(epochs=12, min_steps=600, batch=64)
    assert recipe.epochs_for(24_000) == 12
    assert recipe.epochs_for(128) == 300  # two steps an epoch
    assert recipe.epochs_for(10) == 600


def test_the_bag_weighs_as_scikit_learns_tfidf_does() -> None:
    """Characters alone: sublinear counts, smoothed idf, length 1."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    reference = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=2, sublinear_tf=True)
    x = reference.fit_transform(QUESTIONS)
    expected = LogisticRegression(C=8.0, max_iter=1000).fit(x, LABELS).predict_proba(x)[:, 1]
    bag = fit_bag(BagRecipe(word_to=0), QUESTIONS, LANGUAGES, LABELS, ONES)
    np.testing.assert_allclose(bag.predict(QUESTIONS, LANGUAGES), expected, atol=2e-3)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_the_head_computes_what_scikit_learns_network_does() -> None:
    from sklearn.neural_network import MLPClassifier

    x = embed(QUESTIONS).astype(np.float64)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    net = MLPClassifier((4,), alpha=0.001, batch_size=40, max_iter=12, n_iter_no_change=12, random_state=1)
    expected = net.fit(z, LABELS).predict_proba(z)[:, 1]
    head = fit_head(
        HeadRecipe(networks=1, hidden=4, epochs=12, min_steps=0, alpha=0.001),
        embed(QUESTIONS),
        LABELS,
        ONES,
        1,
    )
    np.testing.assert_allclose(head.predict(embed(QUESTIONS)), expected, atol=1e-9)
