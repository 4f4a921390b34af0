"""The daily refresh.

Law: the schedule runs the one act that asks the world, and nothing else; the
sensor on the observations runs what depends on them. It is off until a person
switches it on, since asking may cost money.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

AT = "0 6 * * *"  # UTC


def daily_refresh(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """A run a day, as of the day for which it was planned, even when it starts late."""

    @dg.schedule(
        job=job,
        name="daily_refresh",
        cron_schedule=AT,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Asks once a day for the answers that are due. Off by default: asking may cost money.",
    )
    def daily(context: dg.ScheduleEvaluationContext) -> Any:
        day = context.scheduled_execution_time.date().isoformat()
        return dg.RunRequest(run_key=day, run_config={"ops": {"ask_world": {"config": {"as_of": day}}}})

    return daily
