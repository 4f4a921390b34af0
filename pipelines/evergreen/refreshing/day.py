"""The day for which answers are asked.

Law: it is given, or it is today in UTC, for every driver alike. A day that has begun nowhere on earth is
refused: an answer found today would hold from then on, and its question would not be asked until then.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta

from pipelines.errors import ConfigError

FIRST = timedelta(hours=14)  # before UTC: where a day begins


def day_of(told: str, now: datetime, where: str, *, ahead: bool = False) -> date:
    """The day that `told` names, YYYY-MM-DD, or that of `now` (aware) in UTC where it is empty.

    `ahead`: a day to come is allowed, too: nothing is asked for it. `where` names what told it, for the
    ConfigError of another text.
    """
    if not told:
        return now.date()
    try:
        day = date.fromisoformat(told)
    except ValueError as e:
        raise ConfigError(f"{told!r} is not a date", where=where, cure="write it as YYYY-MM-DD") from e
    if not ahead and day > (now + FIRST).date():
        cure = "answers are found today or were found before; --dry-run tells what will be due"
        raise ConfigError(f"{told} is still to come", where=where, cure=cure)
    return day
