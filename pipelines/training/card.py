"""The model card of the evergreen classifier, in Markdown: what it was made of, and what it is not.

Law: pure; every figure on it stands in metrics.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def card(told: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """`told`: metrics.json of the training stage; `params`: its parameters."""
    tuned = params["encoder"]["kind"] == "finetuned"
    parts = [
        "a logistic regression on a bag of character and word n-grams",
        "small networks on frozen sentence embeddings",
        *([f"the top {params['encoder']['layers']} layers of an encoder, fine-tuned"] if tuned else []),
    ]
    lines = [
        "# Evergreen classifier",
        "",
        "P(evergreen) of a question: whether its answer almost never changes. Label 1 = evergreen,",
        "0 = mutable (the answer changes within about ten years). One model for all languages.",
        "",
        "## Made of",
        "",
        *(f"- {part}" for part in parts),
        "",
        "## Trained on",
        "",
        "| source / label | questions |",
        "| --- | ---: |",
        *(f"| {name} | {count} |" for name, count in told["questions"].items()),
        "",
        f"Rows: {told['rows']} ({', '.join(f'{k} {v}' for k, v in told['rows_by_language'].items())}).",
        f"Left out: {told['leaks']['equals_test']} questions that equal a test question in any language, and "
        f"{told['leaks']['near_test']} that nearly do (cosine {params['near_cosine']:g}).",
        "",
        "## Probability",
        "",
        *_probability(told),
        "",
        "## What it is not",
        "",
        "- No judge of single facts: it goes by a question's form and subject, and knows no answer.",
        "- Not calibrated for another mix of questions: the share that it expects is stated above.",
        "- Not tried on languages that its training rows lack.",
        '- What a template gives away (an opening such as "how old") counts for much of its score: the',
        "  evaluation reports the figures without such questions beside the others.",
    ]
    return "\n".join(lines) + "\n"


def _probability(told: Mapping[str, Any]) -> list[str]:
    if "prior" not in told:
        return [f"Not calibrated ({told['calibration']})."]
    prior, scored = told["prior"], told["cross_validation"]["ensemble"]
    f1 = scored["weighted_f1"]
    return [
        "Weights of the parts and scale come from real train questions that the parts did not see "
        f"({told['calibration']}).",
        f"Evergreen share among these: {prior['train']:.3f}; in use: {prior['used']:.3f} ({prior['how']}, "
        f"under {prior['shift']} shift).",
        f"Weighted F1 in cross-validation at the latter share: {f1['value']:.3f} "
        f"[{f1['low']:.3f}, {f1['high']:.3f}]; AUROC {scored['auroc']:.3f}.",
    ]
