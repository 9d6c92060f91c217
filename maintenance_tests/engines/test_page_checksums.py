"""Page checksums: every flipped byte of a page is found, and good files pass."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets.engines.page_checksums import verify_page_checksums
from maintenance_assets.engines.thrift import Reader
from maintenance_assets.errors import RewriteError
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.footers import read_footer
from maintenance_tests.datasets import Lake, parquet_bytes

TABLE = pa.table(
    {
        "id": list(range(500)),
        "text": [f"t{n % 7}" for n in range(500)],
        "list": [[n] * (n % 3) for n in range(500)],
    }
)
WRITERS: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2": {"data_page_version": "2.0"},
    "small pages": {"data_page_size": 64, "write_batch_size": 10},
    "row groups": {"row_group_size": 100, "compression": "zstd"},
    "plain": {"use_dictionary": False, "compression": "none", "write_statistics": False},
}


def check(lake: Lake, content: bytes) -> None:
    lake.put("a.parquet", content)
    store: Store = open_store(lake.url)
    listed = store.stat(store.path("a.parquet"))
    assert isinstance(listed, Listed)
    verify_page_checksums(read_footer(store, listed), store)


@pytest.mark.parametrize("writer", WRITERS)
def test_good_files_pass(local: Lake, writer: str) -> None:
    for sums in (True, False):
        check(local, parquet_bytes(TABLE, write_page_checksum=sums, **WRITERS[writer]))
    assert local.open("a.parquet").metadata.num_rows == 500


@pytest.mark.parametrize("writer", WRITERS)
def test_every_flipped_byte_of_a_page_is_found(local: Lake, writer: str) -> None:
    content = parquet_bytes(TABLE, write_page_checksum=True, **WRITERS[writer])
    for position in page_bytes(content):
        broken = bytearray(content)
        broken[position] ^= 0x10
        with pytest.raises(RewriteError, match="cannot be read"):
            check(local, bytes(broken))


def page_bytes(content: bytes) -> list[int]:
    """Positions inside pages, not in their headers: forty of them, anywhere."""
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    inside: list[int] = []
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            end = start + chunk.total_compressed_size
            while start < end:
                reader = Reader(memoryview(content), start)
                size = reader.struct()[3]
                inside += range(reader.position, reader.position + size)
                start = reader.position + size
    return [int(p) for p in np.random.default_rng(0).choice(inside, 40)]


def test_values_of_every_thrift_kind_are_read() -> None:
    # Field 1 i32 -3, field 2 true, field 20 binary "ab", field 21 list of two i64, then a map.
    data = bytes([0x15, 5, 0x11, 0x08, 40, 2, 97, 98, 0x19, 0x26, 2, 4, 0x1B, 1, 0x58, 2, 1, 99, 0])
    reader = Reader(memoryview(data))
    assert reader.struct() == {1: -3, 2: True, 20: b"ab", 21: [1, 2], 22: [(1, b"c")]}
    assert reader.position == len(data)


def test_damaged_thrift_is_an_error() -> None:
    with pytest.raises((ValueError, IndexError)):
        Reader(memoryview(bytes([0x18, 200, 1]))).struct()
    with pytest.raises(ValueError, match="not a Thrift type"):
        Reader(memoryview(bytes([0x1F, 0]))).struct()


def test_empty_row_groups_and_long_headers_are_fine(local: Lake) -> None:
    empty = pa.table({"id": pa.array([], pa.int64())})
    check(local, parquet_bytes(empty, write_page_checksum=True))
    long = pa.table({"s": ["x" * 9000, "y" * 9000]})
    for sums in (True, False):
        check(local, parquet_bytes(long, use_dictionary=False, write_page_checksum=sums))
    assert local.open("a.parquet").metadata.num_rows == 2
