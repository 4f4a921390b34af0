"""Questions on ten books, of both classes, and a head that is large enough to tell them apart."""

from __future__ import annotations

FIXED = ["Who wrote {}?", "Qui a écrit {} ?"]
MOVING = ["How old is the author of {} now?", "Quel âge a maintenant l'auteur de {} ?"]
BOOKS = [
    "Emma",
    "Dracula",
    "Ulysses",
    "Hamlet",
    "Faust",
    "Candide",
    "Germinal",
    "Middlemarch",
    "Walden",
    "Kim",
]
LITTLE = {"networks": 2, "hidden": 16, "min_steps": 100}  # of training.evergreen.head
