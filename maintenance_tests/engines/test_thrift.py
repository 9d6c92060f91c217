"""Thrift structs that are taken apart and put together again are the same, known or not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.engines.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    Reader,
    int_bytes,
    int_of,
    list_bytes,
    struct_bytes,
    take_list,
    take_struct,
    to_int,
)

# Field 1 i32 -3, 2 true, 20 binary "ab", 21 list of two i64, 22 a map, 23 a double, 40 a struct.
ALL_KINDS = bytes.fromhex(
    "1505 11 0828026162 19260204 1b0158020163 170000000000000040 0c50150200 00".replace(" ", "")
)


def varint(value: int) -> bytes:
    return int_bytes(value)


def binary(content: bytes) -> bytes:
    size = len(content)
    head = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return head + content


SCALARS: st.SearchStrategy[tuple[int, bytes]] = st.one_of(
    st.sampled_from([(1, b""), (2, b"")]),
    st.binary(min_size=1, max_size=1).map(lambda b: (3, b)),
    st.integers(-(2**31), 2**31 - 1).map(lambda n: (5, varint(n))),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: (I64, varint(n))),
    st.binary(min_size=8, max_size=8).map(lambda b: (7, b)),
    st.binary(max_size=300).map(lambda b: (BINARY, binary(b))),
)


def structs(values: Any) -> Any:
    fields = st.dictionaries(st.integers(1, 200), values, max_size=6)
    return fields.map(lambda found: (STRUCT, struct_bytes(found)))


def lists(values: Any) -> Any:
    same = st.lists(st.integers(-5, 5), max_size=20).map(lambda ns: [varint(n) for n in ns])
    whole = st.lists(structs(SCALARS).map(lambda s: s[1]), max_size=20)
    return st.one_of(
        same.map(lambda items: (LIST, list_bytes(items, I64))),
        whole.map(lambda items: (LIST, list_bytes(items))),
    )


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(structs(inner), lists(inner)), max_leaves=12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.dictionaries(st.integers(1, 300), VALUES, max_size=12))
def test_a_struct_survives_with_all_its_fields(fields: dict[int, tuple[int, bytes]]) -> None:
    content = struct_bytes(fields)
    taken, end = take_struct(content + b"rest", 0)
    assert (taken, end) == (dict(sorted(fields.items())), len(content))
    assert struct_bytes(taken) == content
    reader = Reader(content)  # the other reader agrees where the struct ends
    reader.struct()
    assert reader.position == len(content)


def test_fields_of_every_kind_are_kept() -> None:
    fields, end = take_struct(ALL_KINDS, 0)
    assert end == len(ALL_KINDS)
    assert list(fields) == [1, 2, 20, 21, 22, 23, 40]
    assert int_of(fields, 1) == -3
    assert int_of(fields, 99, 7) == 7
    assert struct_bytes(fields) == ALL_KINDS


@pytest.mark.parametrize("value", [0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_integers_of_any_width(value: int) -> None:
    assert to_int(int_bytes(value)) == value


def test_a_changed_field_changes_nothing_else() -> None:
    fields, _ = take_struct(ALL_KINDS, 0)
    fields[1] = 5, int_bytes(1_000_000)
    again, _ = take_struct(struct_bytes(fields), 0)
    assert again.pop(1) == (5, int_bytes(1_000_000))
    expected, _ = take_struct(ALL_KINDS, 0)
    del expected[1]
    assert again == expected


def test_long_lists_have_another_header() -> None:
    items = [struct_bytes({1: (I64, int_bytes(n))}) for n in range(1000)]
    found, end = take_list(list_bytes(items), 0, take_struct)
    assert [int_of(fields, 1) for fields in found] == list(range(1000))
    assert end == len(list_bytes(items))


DAMAGED = {
    "ends early": ALL_KINDS[:-1],
    "text beyond the end": bytes([0x18, 200, 1, 97]),
    "unknown kind": bytes([0x1F, 0]),
    "a field twice": bytes([0x15, 2, 0x05, 2, 2, 0]),
    "list beyond the end": bytes([0x19, 0xF6, 0xFF, 0xFF, 0xFF, 0x7F, 0]),
    "map of unknown kinds": bytes([0x1B, 1, 0xFF, 1, 0]),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_structs_are_errors(kind: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        take_struct(DAMAGED[kind], 0)


def test_a_list_of_something_else_is_an_error() -> None:
    with pytest.raises(ValueError, match="where one of structs should be"):
        take_list(list_bytes([b"\x02"], I64), 0, take_struct)
