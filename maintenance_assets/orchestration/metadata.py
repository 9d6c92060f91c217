"""Results as asset metadata: canonical figures as plain numbers, so that they plot."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster
import pyarrow as pa

from maintenance_assets.model.health import DatasetHealth
from maintenance_assets.operations.results import CompactionResult, OptimizeResult

MAX_ROWS = 20
"""Rows of a table in metadata: a plan may have thousands of groups."""
MAX_COLUMNS = 500
_BAR_WIDTH = 20
_NO_RANGES = "unknown | unknown | footers tell no range"
MAX_TEXT = 1000
"""Characters of one text: a message may name every column of a wide file."""


def result_metadata(result: CompactionResult, before: DatasetHealth) -> dict[str, Any]:
    """Everything worth seeing about one operation on files."""
    stats = {k: v for k, v in result.to_dict().items() if k != "planned_groups"}
    metadata: dict[str, Any] = {
        **{key: value for key, value in stats.items() if value is not None},
        "engine": result.engine,
        "engine_reason": result.engine_reason,
        "mode": result.mode,
        "publish": result.publish,
        "seconds": round(result.seconds, 3),
        "rows": result.rows,
        "rows_after": result.rows_after,
        "health_before": round(before.score, 1),
        "planned_groups": dagster.MetadataValue.md(groups_table(result)),
    }
    if result.notes or result.engine_notes:
        notes = [*result.notes, *result.engine_notes]
        metadata["notes"] = dagster.MetadataValue.md(bullets(notes))
    told = {
        "failures": [failure.reason for failure in result.failures],
        "conflicts": [conflict.reason for conflict in result.conflicts],
        "recovered": result.recovered,
    }
    for name, texts in told.items():
        if texts:
            metadata[name] = dagster.MetadataValue.md(bullets(texts))
    schema = result.schema
    if schema is not None:
        metadata["dagster/column_schema"] = column_schema(schema)
    if isinstance(result, OptimizeResult):
        metadata |= clustering_metadata(result)
    return metadata


def clustering_metadata(result: OptimizeResult) -> dict[str, Any]:
    """What clustering gained: numbers that plot, and a chart that shows."""
    metadata: dict[str, Any] = {
        "curve": result.curve,
        "clustering": dagster.MetadataValue.md(gains_chart(result)),
        "decisions": dagster.MetadataValue.md(decisions_table(result)),
    }
    for gain in result.gains[:MAX_ROWS]:
        for when, share, is_known in (
            ("before", gain.share_before, gain.is_known_before),
            ("after", gain.share_after, gain.is_known_after),
        ):
            if is_known:
                metadata[f"files_touched_percent_{when}/{gain.column}"] = round(100 * share, 2)
    return metadata


def gains_chart(result: OptimizeResult) -> str:
    """For each column the files that a look-up of one value opens, before and after."""
    if not result.gains:
        return "Nothing to compare."
    lines = ["| look-up by | | files touched | overlap depth | |", "|---|---|---:|---:|---|"]
    after = "predicted" if result.stats.dry_run else "after"
    for gain in result.gains[:MAX_ROWS]:
        for name, when, share, depth, is_known in (
            (
                gain.column,
                "before",
                gain.share_before,
                gain.depth_before,
                gain.is_known_before,
            ),
            ("", after, gain.share_after, gain.depth_after, gain.is_known_after),
        ):
            figures = f"{share:.1%} | {depth:,.1f} | {_bar(share)}"
            lines.append(f"| {name} | {when} | {figures if is_known else _NO_RANGES} |")
    return "\n".join(lines)


def _bar(share: float) -> str:
    filled = round(_BAR_WIDTH * share)
    return "█" * filled + "░" * (_BAR_WIDTH - filled)


def decisions_table(result: OptimizeResult) -> str:
    """What was done with each partition and why, the most work first."""
    decisions = sorted(result.decisions, key=lambda decision: -decision.rewritten)
    lines = ["| partition | action | files rewritten | why |", "|---|---|---:|---|"]
    root = result.plan.root
    for one in decisions[:MAX_ROWS]:
        where = one.directory[len(root) :].strip("/") or "(root)"
        rewritten = f"{one.rewritten} of {one.files}"
        lines.append(f"| {where} | {one.action} | {rewritten} | {one.reason} |")
    if len(decisions) > MAX_ROWS:
        lines.append(f"| ... and {len(decisions) - MAX_ROWS} more partitions | | | |")
    return "\n".join(lines)


def groups_table(result: CompactionResult) -> str:
    """The planned groups, the largest first, never more than fit a page."""
    groups = sorted(result.plan.groups, key=lambda group: -group.total_bytes)
    if not groups:
        return "Nothing to do."
    lines = ["| partition | files | MiB | files after |", "|---|---:|---:|---:|"]
    root = result.plan.root
    for group in groups[:MAX_ROWS]:
        where = group.directory[len(root) :].strip("/") or "(root)"
        size = group.total_bytes / 1024**2
        lines.append(f"| {where} | {len(group.files)} | {size:.2f} | {len(group.output_rows)} |")
    if len(groups) > MAX_ROWS:
        lines.append(f"| ... and {len(groups) - MAX_ROWS} more groups | | | |")
    return "\n".join(lines)


def bullets(texts: Sequence[str]) -> str:
    """A bounded list."""
    shown = [f"- {shorten(text)}" for text in texts[:MAX_ROWS]]
    if len(texts) > MAX_ROWS:
        shown.append(f"- ... and {len(texts) - MAX_ROWS} more")
    return "\n".join(shown)


def shorten(text: str) -> str:
    """A text that fits a page."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ..."


def column_schema(schema: pa.Schema) -> dagster.TableSchema:
    """The columns as Dagster shows them."""
    return dagster.TableSchema(
        columns=[
            dagster.TableColumn(
                name=field.name,
                type=str(field.type)[:200],
                constraints=dagster.TableColumnConstraints(nullable=field.nullable),
            )
            for field in list(schema)[:MAX_COLUMNS]
        ]
    )


def health_metadata(
    health: DatasetHealth, worst: Sequence[tuple[str, int, int]]
) -> Mapping[str, Any]:
    """What the sensor saw, as numbers that plot, and the partitions most in need."""
    lines = ["| partition | small files | files to save |", "|---|---:|---:|"]
    lines += [f"| {name or '(root)'} | {small} | {gain} |" for name, small, gain in worst]
    return {
        "health": round(health.score, 1),
        "file_count": health.file_count,
        "small_file_count": health.small_files,
        "total_bytes": health.total_bytes,
        "partition_count": health.partitions,
        "gain": health.gain,
        "worst_partitions": dagster.MetadataValue.md("\n".join(lines) if worst else "none"),
    }
