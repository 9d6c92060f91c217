"""Types of declared fields."""

from typing import Annotated

import dagster
from pydantic import AfterValidator, Field


def _checked_cron(cron: str) -> str:
    try:
        dagster.ScheduleDefinition(name="check", job_name="check", cron_schedule=cron)
    except dagster.DagsterInvalidDefinitionError as error:
        raise ValueError(f"{cron!r} is not a cron schedule") from error
    return cron


# Strict: `true` and "128" are slips of the pen, not numbers.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
PositiveInt = Annotated[int, Field(gt=0, strict=True)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
# Dagster itself ends a tick after 60 seconds, and with it what the tick found out.
TickSeconds = Annotated[float, Field(gt=0, lt=60, strict=True)]
Cron = Annotated[str, AfterValidator(_checked_cron)]
