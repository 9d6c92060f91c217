"""Compare what was written with what was promised, before anyone can see it."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from maintenance_assets.errors import VerificationError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.fidelity import schema_difference
from maintenance_assets.planning.file_metadata import with_row_count


def verify_group(group: RewriteGroup, written: tuple[DataFile, ...]) -> None:
    """Rows, schema, nullability, field ids, metadata and Parquet types, or VerificationError."""
    verify_files(group.files, group.schema, list(zip(written, group.output_rows, strict=True)))


def verify_files(
    like: Iterable[DataFile], schema: pa.Schema, written: Sequence[tuple[DataFile, int]]
) -> None:
    """The same for files with their promised rows, whose columns are `like` those of others."""
    # Thousands of sources share a handful of schemas.
    sources = {file.schema.fingerprint: file for file in like}.values()
    for file, rows in written:
        if file.num_rows != rows:
            raise VerificationError(f"an output has {file.num_rows} rows instead of {rows}")
        _verify_leaves(sources, file)
        _verify_fields(file.schema.arrow, schema)
        _verify_metadata(file, with_row_count(schema, rows))


def _verify_fields(actual: pa.Schema, promised: pa.Schema) -> None:
    difference = schema_difference(actual, promised)
    if difference:
        raise VerificationError(
            f"{difference}; the engine cannot keep it, so its files are left as they are"
        )


def _verify_metadata(file: DataFile, promised: pa.Schema) -> None:
    actual, wanted = file.schema.arrow.metadata or {}, promised.metadata or {}
    for key in sorted({*actual, *wanted} - {b"ARROW:schema"}):
        if actual.get(key) != wanted.get(key):
            raise VerificationError(f"file metadata {key!r} would not be kept")


def _verify_leaves(sources: Iterable[DataFile], file: DataFile) -> None:
    """Parquet knows types that Arrow does not (ENUM, BSON, INTERVAL, VARIANT, geometry)."""
    written = _special_types(file)
    for source in sources:
        special = sorted(_special_types(source) - written)
        if special:
            raise VerificationError(
                f"'{source.path}' has a column of Parquet type '{special[0]}' that the engine "
                "cannot keep; its files are left as they are"
            )


_SPECIAL = ("ENUM", "BSON", "INTERVAL", "VARIANT", "GEOMETRY", "GEOGRAPHY", "JSON", "UUID")


def _special_types(file: DataFile) -> set[str]:
    kinds = (_special_type(leaf.upper()) for leaf in file.schema.leaves)
    return {*kinds, *file.schema.annotations} - {""}


def _special_type(leaf: str) -> str:
    if " TIME(" in leaf:
        # The unit is in the Arrow type; that it is in UTC is not.
        return "TIME in UTC" if "ISADJUSTEDTOUTC=TRUE" in leaf else "TIME without a zone"
    special = leaf.startswith("INT96") or any(word in leaf for word in _SPECIAL)
    return leaf if special else ""
