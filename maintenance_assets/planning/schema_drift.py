"""Merging the schemas of many files into one that loses nothing, or saying why there is none."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import pyarrow as pa

from maintenance_assets.errors import SchemaConflictError
from maintenance_assets.planning.file_metadata import calendar_of, merge_file_metadata
from maintenance_assets.planning.polars_marks import MARKS, Marks, common_marks, marks_of
from maintenance_assets.planning.widening import ArrowType, widen_flat, widen_integers

ArrowField = Any  # as ArrowType

FIELD_ID = b"PARQUET:field_id"
# A reader without the extension registered sees the storage type and these two keys.
EXTENSION_KEYS = (b"ARROW:extension:name", b"ARROW:extension:metadata")


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """One file and its schema as pyarrow reads it, metadata included."""

    path: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """Two files that give one column types no common type can hold."""

    column: str
    left_type: str
    right_type: str
    left_path: str
    right_path: str
    reason: str

    def describe(self) -> str:
        """The conflict and its remedy in one sentence each."""
        return (
            f"column {self.column!r} is {self.left_type} in {self.left_path!r} and "
            f"{self.right_type} in {self.right_path!r}: {self.reason}. "
            "Rewrite one of the two so that the column agrees, or move it to another directory"
        )


@dataclass(frozen=True, slots=True)
class MergedSchema:
    """The schema that holds every source, and in words what was changed, kept or dropped."""

    schema: pa.Schema
    notes: tuple[str, ...]


class _RefusedError(Exception):
    """Raised inside a merge, where the files are not known; becomes a SchemaConflict."""

    def __init__(self, column: str, left: pa.DataType, right: pa.DataType, reason: str) -> None:
        super().__init__(column, left, right, reason)
        self.column, self.left, self.right, self.reason = column, left, right, reason


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the schema a merge stands; notes is a dict to keep order without repeats."""

    column: str
    notes: dict[str, None]

    def child(self, name: str) -> "_Place":
        return _Place(f"{self.column}.{name}" if self.column else name, self.notes)

    def refuse(self, left: pa.DataType, right: pa.DataType, reason: str) -> NoReturn:
        raise _RefusedError(self.column, left, right, reason)


def merge_schemas(sources: Sequence[SchemaSource]) -> MergedSchema:
    """One schema for all sources, whatever their order; raises SchemaConflictError."""
    if not sources:
        raise ValueError("merge_schemas needs at least one source")
    whole = _distinct(sources)
    # Metadata often differs per file (pandas row counts) while the fields are few.
    shapes = _distinct([SchemaSource(s.path, s.schema.remove_metadata()) for s in whole])
    _check_calendars(whole)
    notes: dict[str, None] = {}
    fields: list[ArrowField] = list(shapes[0].schema)
    for position, shape in enumerate(shapes[1:], start=1):
        try:
            fields = _merge_siblings(fields, list(shape.schema), _Place("", notes))
        except _RefusedError as refused:
            conflict = _locate(refused, shapes[:position], shape)
            raise SchemaConflictError(conflict) from None
    merged = pa.schema(fields)
    metadata, metadata_notes = merge_file_metadata([(s.path, s.schema) for s in whole], merged)
    changes = _describe_changes(merged, [s.schema for s in shapes])
    return MergedSchema(
        schema=merged.with_metadata(metadata) if metadata else merged,
        notes=tuple(dict.fromkeys(chain(changes, notes, metadata_notes))),
    )


def widen(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds every value of both, or None when there is none."""
    try:
        merged: pa.DataType = _merge_types(left, right, _Place("", {}))
    except _RefusedError:
        return None
    return merged


def _distinct(sources: Iterable[SchemaSource]) -> list[SchemaSource]:
    """The first source, by path, of each schema that differs in anything."""
    # Callers often share one schema object among files: do not serialize it again.
    serialized: dict[int, bytes] = {}
    keyed: list[tuple[str, bytes, SchemaSource]] = []
    for source in sources:
        key = serialized.get(id(source.schema))
        if key is None:
            key = serialized[id(source.schema)] = source.schema.serialize().to_pybytes()
        keyed.append((source.path, key, source))
    keyed.sort(key=lambda item: item[:2])
    first: dict[bytes, SchemaSource] = {}
    for _, key, source in keyed:
        first.setdefault(key, source)
    return list(first.values())


def _locate(
    refused: _RefusedError, earlier: list[SchemaSource], source: SchemaSource
) -> SchemaConflict:
    """Name the earlier file that really disagrees: the merged type may be in no file at all."""
    left_path = earlier[0].path
    for candidate in earlier:
        try:
            _merge_siblings(list(candidate.schema), list(source.schema), _Place("", {}))
        except _RefusedError as pairwise:
            refused, left_path = pairwise, candidate.path
            break
    return SchemaConflict(
        column=refused.column,
        left_type=str(refused.left),
        right_type=str(refused.right),
        left_path=left_path,
        right_path=source.path,
        reason=refused.reason,
    )


def _check_calendars(sources: list[SchemaSource]) -> None:
    """Refuse to put files under one label that Spark reads in different calendars or zones."""
    for holds, what in ((pa.types.is_timestamp, slice(None)), (pa.types.is_date, slice(1))):
        by_calendar: dict[Any, SchemaSource] = {}
        for source in sources:
            by_calendar.setdefault(calendar_of(source.schema.metadata or {})[what], source)
        column = _first_holding(holds, sources) if len(by_calendar) > 1 else None
        if column is not None:
            left, right = sorted(by_calendar.values(), key=lambda s: s.path)[:2]
            _refuse_calendars(column, left, right)


def _refuse_calendars(column: str, left: SchemaSource, right: SchemaSource) -> NoReturn:
    types = [_type_name(s.schema, column) for s in (left, right)]
    reason = (
        "Spark reads one file in the legacy calendar (org.apache.spark.version below 3.0, for "
        "INT96 below 3.1, legacyDateTime or legacyINT96) and the other not, or in another "
        "org.apache.spark.timeZone, so old dates would change their meaning"
    )
    raise SchemaConflictError(
        SchemaConflict(column, types[0], types[1], left.path, right.path, reason)
    )


def _first_holding(holds: Callable[[ArrowType], bool], sources: list[SchemaSource]) -> str | None:
    fields = chain.from_iterable(source.schema for source in sources)
    return next((field.name for field in fields if _holds(holds, field.type)), None)


def _type_name(schema: pa.Schema, name: str) -> str:
    position = schema.get_field_index(name)
    return str(schema.field(position).type) if position >= 0 else "absent"


def _holds(holds: Callable[[ArrowType], bool], type_: ArrowType) -> bool:
    if holds(type_):
        return True
    if pa.types.is_dictionary(type_):
        return _holds(holds, type_.value_type)
    return any(_holds(holds, type_.field(i).type) for i in range(type_.num_fields))


def _describe_changes(merged: pa.Schema, shapes: list[pa.Schema]) -> Iterable[str]:
    """Say which columns will not come out as some file has them."""
    if len(shapes) == 1:
        return
    by_name = [{field.name: field for field in shape} for shape in shapes]
    for field in merged:
        found = [fields[field.name] for fields in by_name if field.name in fields]
        types = dict.fromkeys(str(f.type) for f in found)
        if any(f.type != field.type for f in found):
            yield f"column {field.name!r}: {', '.join(types)} become {field.type}"
        if len(found) < len(shapes):
            yield f"column {field.name!r}: absent from some files, null in their rows"
        elif field.nullable and not all(f.nullable for f in found):
            yield f"column {field.name!r}: required in some files, becomes nullable"


def _merge_siblings(
    left: list[ArrowField], right: list[ArrowField], place: _Place
) -> list[ArrowField]:
    """Fields by name in the left order, the right's additions after them."""
    _check_repeated_names(left, right, place)
    mine = {field.name for field in left}
    theirs = {field.name: field for field in right}
    merged = [
        _merge_fields(field, theirs[field.name], place.child(field.name))
        if field.name in theirs
        else field.with_nullable(True)
        for field in left
    ]
    _check_spellings(left, right, place)
    merged += [field.with_nullable(True) for field in right if field.name not in mine]
    _check_field_ids(merged, place)
    return merged


def _check_repeated_names(left: list[ArrowField], right: list[ArrowField], place: _Place) -> None:
    """Identical schemas never get here, so a repeated name cannot be told apart any more."""
    for fields in (left, right):
        name, count = Counter(f.name for f in fields).most_common(1)[0] if fields else ("", 0)
        if count > 1:
            types = [
                next((f.type for f in side if f.name == name), pa.null()) for side in (left, right)
            ]
            reason = "the name is used by several columns of one file and the files differ"
            place.child(name).refuse(types[0], types[1], reason)


def _check_spellings(left: list[ArrowField], right: list[ArrowField], place: _Place) -> None:
    """`userId` here and `userid` there are one column to SQL engines and two to Arrow."""
    folded = {field.name.casefold(): field for field in left}
    names = {field.name for field in left}
    theirs = {field.name for field in right}
    for field in right:
        twin = folded.get(field.name.casefold())
        if field.name not in names and twin is not None and twin.name not in theirs:
            reason = f"the names {twin.name!r} and {field.name!r} differ only in case"
            place.child(field.name).refuse(twin.type, field.type, reason)


def _check_field_ids(fields: list[ArrowField], place: _Place) -> None:
    owners: dict[bytes, ArrowField] = {}
    for field in fields:
        field_id = (field.metadata or {}).get(FIELD_ID)
        if field_id is None:
            continue
        owner: ArrowField = owners.setdefault(field_id, field)
        if owner is not field:
            reason = f"field id {field_id.decode()} belongs to column {owner.name!r} as well"
            place.child(field.name).refuse(owner.type, field.type, reason)


def _merge_fields(left: ArrowField, right: ArrowField, place: _Place) -> ArrowField:
    if left.equals(right, check_metadata=True):
        return left
    _check_extensions(left, right, place)
    merged = _merge_types(left.type, right.type, place)
    # A file may declare a column required that is of type null: it holds nulls all the same.
    nulls = pa.types.is_null(left.type) != pa.types.is_null(right.type)
    nullable = left.nullable or right.nullable or nulls
    metadata = _merge_field_metadata(left, right, place)
    metadata |= _merge_marks(left, right, merged, place)
    return left.with_type(merged).with_nullable(nullable).with_metadata(metadata)


def _check_extensions(left: ArrowField, right: ArrowField, place: _Place) -> None:
    """Values of an extension type that pyarrow does not know may only meet their equals."""
    marks = [tuple((f.metadata or {}).get(k) for k in EXTENSION_KEYS) for f in (left, right)]
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        alike = marks[0] == marks[1] or not any(marks[0]) or not any(marks[1])
    else:
        alike = marks[0] == marks[1] and (not any(marks[0]) or left.type == right.type)
    if not alike:
        place.refuse(left.type, right.type, "extension types merge only when they are equal")


def _merge_field_metadata(left: ArrowField, right: ArrowField, place: _Place) -> dict[bytes, bytes]:
    sides = [field.metadata or {} for field in (left, right)]
    mine, theirs = ({k: v for k, v in side.items() if k not in MARKS} for side in sides)
    for key in mine.keys() & theirs.keys():
        if mine[key] == theirs[key]:
            continue
        if key == FIELD_ID:
            reason = f"field id {mine[key].decode()} in one and {theirs[key].decode()} in the other"
            place.refuse(left.type, right.type, reason)
        name = key.decode(errors="replace")
        place.notes[f"column {place.column!r}: metadata {name!r} kept from the first file"] = None
    return {**theirs, **mine}


def _merge_marks(left: ArrowField, right: ArrowField, merged: ArrowType, place: _Place) -> Marks:
    """What Polars notes of its categories, as far as it holds for the values of both."""
    if not pa.types.is_dictionary(merged):
        return {}
    known = [f for f in (left, right) if not pa.types.is_null(f.type)]
    marks = [marks_of(field.metadata or {}) for field in known]
    common = common_marks(marks[0], marks[-1])
    if common is None:
        place.refuse(left.type, right.type, "Polars knows them as enumerations in another order")
    if any(each != common for each in marks):
        what = "those of the longest list" if common else "no longer marked"
        place.notes[f"column {place.column!r}: categories of Polars differ, they are {what}"] = None
    return common


def _merge_types(left: ArrowType, right: ArrowType, place: _Place) -> ArrowType:
    if left.equals(right, check_metadata=True):
        return left
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    if pa.types.is_dictionary(left) or pa.types.is_dictionary(right):
        return _merge_dictionaries(left, right, place)
    # Equal nested types still go this way: their fields may differ in ids and metadata.
    for belongs, merge in _NESTED:
        if belongs(left) and belongs(right):
            return merge(left, right, place)
    merged = left if left == right else widen_flat(left, right)
    return place.refuse(left, right, _why_not(left, right)) if merged is None else merged


def _why_not(left: ArrowType, right: ArrowType) -> str:
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        return "timestamps of different zones, or with and without one, do not mix"
    return "no type holds the values of both without loss"


def _merge_dictionaries(left: ArrowType, right: ArrowType, place: _Place) -> ArrowType:
    plain = [t.value_type if pa.types.is_dictionary(t) else t for t in (left, right)]
    values = widen(plain[0], plain[1])
    if values is None:
        place.refuse(left, right, _why_not(plain[0], plain[1]))
    if not (pa.types.is_dictionary(left) and pa.types.is_dictionary(right)):
        return values
    index = widen_integers(left.index_type, right.index_type)
    if index is None or left.ordered != right.ordered:
        return values
    return pa.dictionary(index, values, ordered=left.ordered)


def _merge_structs(left: ArrowType, right: ArrowType, place: _Place) -> ArrowType:
    sides = [[t.field(i) for i in range(t.num_fields)] for t in (left, right)]
    return pa.struct(_merge_siblings(sides[0], sides[1], place))


def _merge_lists(left: ArrowType, right: ArrowType, place: _Place) -> ArrowType:
    fixed = [t.list_size for t in (left, right) if pa.types.is_fixed_size_list(t)]
    if len(set(fixed)) > 1:
        place.refuse(left, right, "lists of different fixed sizes do not mix")
    element = _merge_fields(left.value_field, right.value_field, place.child(left.value_field.name))
    if len(fixed) == 2:
        return pa.list_(element, fixed[0])
    if pa.types.is_large_list(left) or pa.types.is_large_list(right):
        return pa.large_list(element)
    return pa.list_(element)


def _merge_maps(left: ArrowType, right: ArrowType, place: _Place) -> ArrowType:
    key = _merge_fields(left.key_field, right.key_field, place.child("key"))
    item = _merge_fields(left.item_field, right.item_field, place.child("value"))
    # Keys are required by definition, also where one side is an empty map of null keys.
    keys_sorted: Any = left.keys_sorted and right.keys_sorted
    return pa.map_(key.with_nullable(False), item, keys_sorted)


def _is_list(type_: ArrowType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    )


_Merge = Callable[[ArrowType, ArrowType, _Place], ArrowType]
_NESTED: tuple[tuple[Callable[[ArrowType], bool], _Merge], ...] = (
    (pa.types.is_struct, _merge_structs),
    (_is_list, _merge_lists),
    (pa.types.is_map, _merge_maps),
)
