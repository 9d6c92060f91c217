"""Values that paths give as text, next to values that files hold in a type of their own."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.planning.placement import partition_texts


def typed_value(text: str | None, type_: Any) -> Any | None:
    """The scalar of a type that a text in a path stands for; None where there is none."""
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    if text is None:
        return None
    try:
        value = pa.scalar(text).cast(plain)
        return value if plain == type_ else pa.array([value], plain).cast(type_)[0]
    except (pa.ArrowException, ValueError):
        return None


def differing_value(values: Any, text: str | None) -> Any | None:
    """One of the values that is not what the path says; None when they all are."""
    distinct = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    for value in distinct.unique() if _can_hash(distinct.type) else distinct:
        if not is_same(value, text):
            return value
    return None


def is_same(value: Any, text: str | None) -> bool:
    """Whether a value is the one that a path spells, be it in another way (`01` for 1)."""
    if not value.is_valid or text is None:
        return not value.is_valid and text is None
    typed = typed_value(text, value.type)
    if typed is not None and (typed.equals(value) or _are_nan(typed, value)):
        return True
    return canonical_text(value) == text


def canonical_text(value: Any) -> str | None:
    """How we spell a value in a path."""
    try:
        return partition_texts(pa.array([value], value.type))[0]
    except ValueError:
        return None


def canonical_of(text: str | None, type_: Any) -> str | None:
    """How we would spell what a path says: `1` for `01` where the column is a number."""
    typed = typed_value(text, type_)
    return text if typed is None else canonical_text(typed)


def is_text(type_: Any) -> bool:
    """Whether values are text or bytes."""
    kinds = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(belongs(type_) for belongs in kinds)


def _can_hash(type_: Any) -> bool:
    return not pa.types.is_string_view(type_) and not pa.types.is_binary_view(type_)


def _are_nan(left: Any, right: Any) -> bool:
    if not pa.types.is_floating(left.type):
        return False
    return bool(pc.is_nan(left).as_py() and pc.is_nan(right).as_py())
