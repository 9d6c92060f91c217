"""Whether a schema is the promised one, and in which column it is not."""

import pyarrow as pa


def schema_difference(actual: pa.Schema, promised: pa.Schema) -> str | None:
    """The first difference in names, types, nullability or field metadata, in words."""
    if actual.remove_metadata().equals(promised.remove_metadata(), check_metadata=True):
        return None
    actual, promised = _plain_maps(actual), _plain_maps(promised)
    for name in dict.fromkeys([*promised.names, *actual.names]):
        left, right = _fields(promised, name), _fields(actual, name)
        if len(left) != len(right) or not all(
            one.equals(other, check_metadata=True) for one, other in zip(left, right, strict=True)
        ):
            return f"column '{name}' would become {_describe(right)} instead of {_describe(left)}"
    return None if actual.names == promised.names else "the order of columns would change"


def _fields(schema: pa.Schema, name: str) -> list[pa.Field]:
    return [field for field in schema if field.name == name]


def _describe(fields: list[pa.Field]) -> str:
    return ", ".join(f"{field} {field.metadata or ''}".strip() for field in fields) or "missing"


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
