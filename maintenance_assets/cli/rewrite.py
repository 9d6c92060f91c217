"""Commands that rewrite files without changing a row: plan, compact, optimize, execute."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from maintenance_assets.cli.exits import Exit, exit_of_result
from maintenance_assets.cli.output import Output
from maintenance_assets.cli.session import Session
from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_assets.model.words import size_words
from maintenance_assets.operations import compact as compaction
from maintenance_assets.operations import optimize as clustering
from maintenance_assets.operations import saved_plans
from maintenance_assets.operations.results import CompactionResult, OptimizeResult
from maintenance_assets.planning.worth import cost_words, throughput_of

MOST_GROUPS = 20
Work = Callable[[dict[str, Any]], CompactionResult]


def compact(session: Session) -> Exit:
    """`compact`."""
    return _perform(session, lambda options: _compact(session, session.arguments.dry_run, options))


def optimize(session: Session) -> Exit:
    """`optimize`."""
    return _perform(session, lambda options: _optimize(session, session.arguments.dry_run, options))


def plan(session: Session) -> Exit:
    """`plan`: a dry run of `compact`, or of `optimize` where columns are given."""
    given = session.arguments
    work = _compact if given.zorder is None else _optimize
    with session.working() as options:
        result = work(session, True, options)
    if given.save:
        saved_plans.save_plan(result, given.save)
    report_rewrite(session.output, result)
    if given.save:
        session.output.line(f"saved; carry it out with: parquet-maintenance execute {given.save}")
    return Exit.DONE


def execute(session: Session) -> Exit:
    """`execute`: a plan that was saved."""
    given = session.arguments
    return _perform(
        session,
        lambda options: saved_plans.execute_plan(
            given.plan, given.path, dry_run=given.dry_run, **options
        ),
    )


def _compact(session: Session, dry_run: bool, options: dict[str, Any]) -> CompactionResult:
    given = session.arguments
    return compaction.compact(
        given.path,
        partition_filter=given.partition,
        dry_run=dry_run,
        **session.targets(),
        **options,
    )


def _optimize(session: Session, dry_run: bool, options: dict[str, Any]) -> CompactionResult:
    given = session.arguments
    return clustering.optimize(
        given.path,
        given.zorder,
        curve=given.curve,
        partition_filter=given.partition,
        dry_run=dry_run,
        **session.targets(),
        **options,
    )


def _perform(session: Session, work: Work) -> Exit:
    """Do it and tell; what was done in part is told before the error is."""
    try:
        with session.working() as options:
            result = work(options)
    except IncompleteMaintenanceError as error:
        report_rewrite(session.output, error.result)
        raise
    report_rewrite(session.output, result)
    return exit_of_result(result)


def report_rewrite(
    output: Output, result: CompactionResult, more: Mapping[str, Any] | None = None
) -> None:
    """What was done, or would be; `more` is for machines alone."""
    output.json({**_record(result), **(more or {})})
    stats = result.stats
    output.line(result.dataset)
    if not stats.compacted_file_count:
        output.line(f"nothing to do: {stats.before_file_count:,} files stay as they are")
    elif stats.dry_run:
        _planned(output, result)
    else:
        output.line(
            f"{stats.before_file_count:,} files became {stats.after_file_count:,}, "
            f"{size_words(stats.before_total_bytes)} became {size_words(stats.after_total_bytes)}; "
            f"{stats.compacted_file_count:,} rewritten in {result.seconds:.1f} s by "
            f"{result.engine}, publish: {result.publish}{_passes(result)}"
        )
    if isinstance(result, OptimizeResult):
        _gains(output, result)
    output.lines("note", (*result.notes, *result.engine_notes))
    output.lines("recovered", result.recovered)
    output.lines("changed meanwhile", (conflict.reason for conflict in result.conflicts))
    output.lines("left as it was", (failure.reason for failure in result.failures))


def _passes(result: CompactionResult) -> str:
    """Files that come meanwhile are taken along, so that more may be rewritten than there were."""
    return f", in {result.passes} passes" if result.passes > 1 else ""


def _planned(output: Output, result: CompactionResult) -> None:
    stats, groups = result.stats, result.plan.groups
    rewritten = stats.rewritten_bytes
    output.line(
        f"{stats.before_file_count:,} files would become {stats.after_file_count:,}: "
        f"{stats.compacted_file_count:,} rewritten by {result.engine}, "
        f"{cost_words(rewritten, throughput_of(result.engine))} (an estimate)"
    )
    largest = sorted(groups, key=lambda group: (-group.total_bytes, group.directory))
    output.table(
        ("partition", ">files", ">bytes", ">files after"),
        [
            (
                group.directory[len(result.plan.root) :].strip("/") or "(root)",
                len(group.files),
                size_words(group.total_bytes),
                len(group.output_rows),
            )
            for group in largest[:MOST_GROUPS]
        ],
    )
    if len(groups) > MOST_GROUPS:
        output.line(f"... and {len(groups) - MOST_GROUPS:,} more groups")
    reasons = Counter(file.reason for file in result.untouched)
    for reason, count in sorted(reasons.items()):
        output.line(f"{count:,} files stay: {reason}")


def _gains(output: Output, result: OptimizeResult) -> None:
    rows = [
        (
            gain.column,
            _opened(gain.share_before, gain.depth_before) if gain.is_known_before else "unknown",
            _opened(gain.share_after, gain.depth_after) if gain.is_known_after else "unknown",
        )
        for gain in result.gains
    ]
    output.table(("look-up by", ">files opened before", ">after"), rows)


def _opened(share: float, files: float) -> str:
    """A larger share of fewer files may still be fewer of them."""
    return f"{files:,.1f} ({share:.1%})"


def _record(result: CompactionResult) -> dict[str, Any]:
    """The canonical stats, and beside them what a script may want to know."""
    record = result.to_dict() | {
        "dataset": result.dataset,
        "engine": result.engine,
        "seconds": round(result.seconds, 3),
        "publish": result.publish,
        "rows": result.rows,
        "notes": [*result.notes, *result.engine_notes],
        "recovered": list(result.recovered),
        "conflicts": [_failure(one) for one in result.conflicts],
        "failures": [_failure(one) for one in result.failures],
    }
    if isinstance(result, OptimizeResult):
        record["gains"] = [
            {name: getattr(gain, name) for name in gain.__slots__} for gain in result.gains
        ]
    return record


def _failure(failure: Any) -> dict[str, Any]:
    return {"paths": list(failure.paths), "reason": failure.reason}
