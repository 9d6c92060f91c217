"""Compare what was written with what was promised, before anyone can see it."""

import pyarrow as pa

from maintenance_assets.errors import VerificationError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.file_metadata import with_row_count


def verify_group(group: RewriteGroup, written: tuple[DataFile, ...]) -> None:
    """Rows, schema, nullability, field ids, metadata and Parquet types, or VerificationError."""
    for file, rows in zip(written, group.output_rows, strict=True):
        if file.num_rows != rows:
            raise VerificationError(f"an output has {file.num_rows} rows instead of {rows}")
        _verify_fields(file.schema.arrow, group.schema)
        _verify_metadata(file, with_row_count(group.schema, rows))
        _verify_leaves(group, file)


def _verify_fields(actual: pa.Schema, promised: pa.Schema) -> None:
    if actual.remove_metadata().equals(promised.remove_metadata(), check_metadata=True):
        return
    for name in dict.fromkeys([*promised.names, *actual.names]):
        left, right = _fields(promised, name), _fields(actual, name)
        if len(left) != len(right) or not all(
            one.equals(other, check_metadata=True) for one, other in zip(left, right, strict=True)
        ):
            raise VerificationError(
                f"column '{name}' would become {_describe(right)} instead of {_describe(left)}; "
                "the engine cannot keep it, so its files are left as they are"
            )
    raise VerificationError("the order of columns would change")


def _fields(schema: pa.Schema, name: str) -> list[pa.Field]:
    return [field for field in schema if field.name == name]


def _describe(fields: list[pa.Field]) -> str:
    return ", ".join(f"{field} {field.metadata or ''}".strip() for field in fields) or "missing"


def _verify_metadata(file: DataFile, promised: pa.Schema) -> None:
    actual, wanted = file.schema.arrow.metadata or {}, promised.metadata or {}
    for key in sorted({*actual, *wanted} - {b"ARROW:schema"}):
        if actual.get(key) != wanted.get(key):
            raise VerificationError(f"file metadata {key!r} would not be kept")


def _verify_leaves(group: RewriteGroup, file: DataFile) -> None:
    """Parquet knows types that Arrow does not (ENUM, BSON, INTERVAL, VARIANT, geometry)."""
    written = {_kind(leaf) for leaf in file.schema.leaves}
    for source in group.files:
        missing = {_kind(leaf) for leaf in source.schema.leaves} - written
        special = sorted(leaf for leaf in missing if _is_special(leaf))
        if special:
            raise VerificationError(
                f"'{source.path}' has a column of Parquet type '{special[0]}' that the engine "
                "cannot keep; its files are left as they are"
            )


_SPECIAL = ("ENUM", "BSON", "INTERVAL", "VARIANT", "GEOMETRY", "GEOGRAPHY", "JSON", "UUID")


def _kind(leaf: str) -> str:
    return leaf.upper()


def _is_special(leaf: str) -> bool:
    return leaf.startswith("INT96") or any(word in leaf for word in _SPECIAL)
