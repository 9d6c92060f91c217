"""Compare the rows that were written with those that were read, before anyone can see them."""

from collections import defaultdict

from maintenance_assets.engines.repartition_task import RepartitionOutcome, RepartitionTask
from maintenance_assets.errors import VerificationError
from maintenance_assets.planning.content_hash import Digest


def verify_outcome(task: RepartitionTask, outcome: RepartitionOutcome) -> None:
    """Every row is where it belongs, once and as it was; VerificationError names a directory."""
    if outcome.rows_read != task.total_rows:
        raise VerificationError(
            f"{outcome.rows_read} rows were read, the sources have {task.total_rows}. "
            "Nothing was changed"
        )
    expected = Digest.sum(outcome.expected.values())
    if expected != outcome.read and task.validate:
        raise VerificationError(
            f"rows were lost or changed on their way: {_difference(outcome.read, expected)}"
        )
    _verify_directories(task, outcome)
    if task.plan.transform is None and expected.rows != task.total_rows:
        raise VerificationError(_difference(Digest(task.total_rows), expected))


def require_all_rows(outcome: RepartitionOutcome) -> None:
    """For where the source goes at once: rows that a function left out would be nowhere."""
    written = sum(part.rows for part in outcome.parts)
    if written != outcome.rows_read:
        raise VerificationError(
            f"transform_fn made {written} row(s) of {outcome.rows_read}, and in place there is no "
            "other copy of them. Nothing was changed; choose another target, or pass "
            "validate=False if that is what you want"
        )


def _verify_directories(task: RepartitionTask, outcome: RepartitionOutcome) -> None:
    found: defaultdict[str, Digest] = defaultdict(Digest)
    for part in outcome.parts:
        digest = part.found if part.found is not None else Digest(part.rows)
        if digest.rows != part.rows:
            raise VerificationError(
                f"a file for '{part.directory}' holds {digest.rows} rows, {part.rows} were written"
            )
        found[part.directory] = found[part.directory].plus(digest)
    for directory in sorted({*found, *outcome.expected}):
        there, wanted = found[directory], outcome.expected.get(directory, Digest())
        if there.rows != wanted.rows or (task.validate and there != wanted):
            raise VerificationError(f"in '{directory}', {_difference(wanted, there)}")


def _difference(wanted: Digest, there: Digest) -> str:
    if wanted.rows != there.rows:
        return f"{there.rows} rows were written instead of {wanted.rows}. Nothing was changed"
    return (
        f"the {there.rows} rows that were written do not have the content of those that were "
        "read. Nothing was changed"
    )
