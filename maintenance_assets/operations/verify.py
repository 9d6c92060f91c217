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
        _verify_leaves(group, file)
        _verify_fields(file.schema.arrow, group.schema)
        _verify_metadata(file, with_row_count(group.schema, rows))


def _verify_fields(actual: pa.Schema, promised: pa.Schema) -> None:
    if actual.remove_metadata().equals(promised.remove_metadata(), check_metadata=True):
        return
    actual, promised = _plain_maps(actual), _plain_maps(promised)
    for name in dict.fromkeys([*promised.names, *actual.names]):
        left, right = _fields(promised, name), _fields(actual, name)
        if len(left) != len(right) or not all(
            one.equals(other, check_metadata=True) for one, other in zip(left, right, strict=True)
        ):
            raise VerificationError(
                f"column '{name}' would become {_describe(right)} instead of {_describe(left)}; "
                "the engine cannot keep it, so its files are left as they are"
            )
    if actual.names != promised.names:
        raise VerificationError("the order of columns would change")


def _plain_maps(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain_map(field.type)) for field in schema])


def _plain_map(type_: pa.DataType) -> pa.DataType:
    """PyArrow names the entries of a map after its column when it reads: that says nothing."""
    plain = [type_.field(i).with_type(_plain_map(type_.field(i).type)) for i in _children(type_)]
    if pa.types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        return pa.map_(
            key.with_type(_plain_map(key.type)),
            item.with_type(_plain_map(item.type)),
            type_.keys_sorted,
        )
    if pa.types.is_struct(type_):
        return pa.struct(plain)
    if pa.types.is_large_list(type_):
        return pa.large_list(plain[0])
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(plain[0], type_.list_size)
    return pa.list_(plain[0]) if pa.types.is_list(type_) else type_


def _children(type_: pa.DataType) -> range:
    return range(0 if isinstance(type_, pa.BaseExtensionType) else type_.num_fields)


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
    written = _special_types(file)
    for source in group.files:
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
