"""Replies of a scripted endpoint to the verbal baselines: by the question that is asked last."""

from __future__ import annotations

from typing import Any

REPLIES = {
    "Who wrote Emma?": "**Immutable.**",
    "What is salt?": "Classification: evergreen\n\nQuestion: What does salt cost?\nClassification: mutable",
    "How old is Tom Hanks?": "Mutable, since he grows older",
    "What does tea cost?": "I would rather not say.",
}
YES_NO = {
    "Who wrote Emma?": "No.",
    "What is salt?": "No, it does not",
    "How old is Tom Hanks?": "YES",
    "What does tea cost?": "Maybe",
}


def answer(body: dict[str, Any]) -> str:
    asked = body["messages"][-1]["content"]
    question = asked.split("Question: ", 1)[1].split("\n")[0]
    return (YES_NO if "depend on the day" in asked else REPLIES)[question]
