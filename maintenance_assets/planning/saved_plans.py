"""Plans as JSON, and back: strict, versioned, and without anything that a plan need not know."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeVar, get_args

from maintenance_assets.errors import InvalidPlanError
from maintenance_assets.model.clustering import CURVES
from maintenance_assets.model.plans import GroupFailure
from maintenance_assets.model.policy import CompactionPolicy, codec_name
from maintenance_assets.model.saved_plans import SavedFile, SavedGroup, SavedOperation, SavedPlan

KIND = "parquet-maintenance plan"
FORMAT = 1
T = TypeVar("T")
Record = Mapping[str, Any]


def to_json(plan: SavedPlan) -> str:
    """The plan as text; a checksum tells whether it is still what was saved."""
    content = {
        "kind": KIND,
        "format": FORMAT,
        "operation": plan.operation,
        "dataset": plan.dataset,
        "engine": plan.engine,
        "partition_filter": plan.partition_filter,
        "target_bytes": plan.policy.target_bytes,
        "target_rows": plan.policy.target_rows,
        "compression": plan.policy.compression,
        "columns": list(plan.columns),
        "curve": plan.curve,
        "groups": [_group_record(group) for group in plan.groups],
        "failures": [{"paths": list(f.paths), "reason": f.reason} for f in plan.failures],
    }
    return json.dumps({**content, "checksum": _checksum(content)}, indent=1) + "\n"


def from_json(text: str | bytes) -> SavedPlan:
    """Read a plan; InvalidPlanError where it is none, or not what was saved."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPlanError(f"it is not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InvalidPlanError("it does not hold a plan")
    if content.get("format") != FORMAT:
        raise InvalidPlanError(
            f"its format is {content.get('format')!r}, this version reads format {FORMAT}"
        )
    if content.pop("checksum", None) != _checksum(content):
        raise InvalidPlanError("it was changed after it was saved (the checksum differs)")
    try:
        plan = _plan(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidPlanError(f"{type(error).__name__}: {error}") from error
    _refuse_repeats(plan)
    return plan


def json_filter(value: Any) -> Any:
    """A partition filter in a form that JSON keeps, with the same meaning."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            raise ValueError("a plan cannot keep a filter with a datetime: write it as text")
        case date():
            return value.isoformat()
        case set() | frozenset():
            return sorted((json_filter(item) for item in value), key=repr)
        case list() | tuple():
            return [json_filter(item) for item in value]
        case Mapping():
            return {str(key): json_filter(item) for key, item in value.items()}
        case _:
            raise ValueError(f"a plan cannot keep the filter {value!r}: write it as text")


def _checksum(content: Record) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _group_record(group: SavedGroup) -> dict[str, Any]:
    record: dict[str, Any] = {
        "directory": group.directory,
        "inputs": [_file_record(file) for file in group.inputs],
        "output_rows": list(group.output_rows),
    }
    if group.grid:
        record |= {"beside": [_file_record(file) for file in group.beside], "grid": group.grid}
    return record


def _file_record(file: SavedFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "size_bytes": file.size_bytes,
        "num_rows": file.num_rows,
        "version": file.version,
    }


def _plan(content: Record) -> SavedPlan:
    if content["operation"] not in get_args(SavedOperation):
        raise ValueError(f"unknown operation {content['operation']!r}")
    if content["curve"] not in CURVES:
        raise ValueError(f"unknown curve {content['curve']!r}")
    columns = _each(content["columns"], _text)
    if (content["operation"] == "optimize") != bool(columns):
        raise ValueError("columns belong to a clustering, and only to it")
    return SavedPlan(
        operation=content["operation"],
        dataset=_text(content["dataset"]),
        engine=_text(content["engine"]),
        policy=CompactionPolicy(
            _target(content["target_bytes"]),
            _target(content["target_rows"]),
            codec_name(content["compression"]),
        ),
        groups=_each(content["groups"], _group),
        failures=_each(content["failures"], _failure),
        partition_filter=content["partition_filter"],
        columns=columns,
        curve=content["curve"],
    )


def _group(record: Record) -> SavedGroup:
    group = SavedGroup(
        directory=_text(record["directory"]),
        inputs=_each(record["inputs"], _file),
        output_rows=_each(record["output_rows"], _count),
        beside=_each(record.get("beside", []), _file),
        grid=_text(record.get("grid", "")),
    )
    if not group.inputs or not group.output_rows:
        raise ValueError(f"a group in '{group.directory}' has no files")
    for file in (*group.inputs, *group.beside):
        if file.directory != group.directory:
            raise ValueError(f"'{file.path}' does not lie in '{group.directory}'")
    return group


def _file(record: Record) -> SavedFile:
    path = _text(record["path"])
    # Nothing outside the dataset, and nothing that its readers do not see.
    if any(not part or part.startswith((".", "_")) for part in path.split("/")):
        raise ValueError(f"'{path}' is not the path of a data file below the root")
    version = _text(record["version"])
    return SavedFile(path, _count(record["size_bytes"]), _count(record["num_rows"]), version)


def _failure(record: Record) -> GroupFailure:
    return GroupFailure(_each(record["paths"], _text), _text(record["reason"]))


def _each(items: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise TypeError(f"a list was expected, not {items!r}")
    return tuple(read(item) for item in items)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text was expected, not {value!r}")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"a count was expected, not {value!r}")
    return value


def _target(value: Any) -> int | None:
    return None if value is None else max(1, _count(value))


def _refuse_repeats(plan: SavedPlan) -> None:
    """A file that two groups rewrite would be there twice afterwards."""
    seen: set[str] = set()
    for file in (file for group in plan.groups for file in group.inputs):
        if file.path in seen:
            raise InvalidPlanError(f"two groups rewrite '{file.path}'")
        seen.add(file.path)
