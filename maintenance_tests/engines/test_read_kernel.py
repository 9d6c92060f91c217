"""Batches fit the memory they are given, whatever a footer leaves open."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.model.policy import MIB
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import open_store
from maintenance_tests.datasets import Lake


def batches(lake: Lake, batch_bytes: int) -> list[pa.RecordBatch]:
    """What is read of the only file."""
    store = open_store(lake.url)
    (file,) = discover(store).files
    return list(read_file(file, file.schema.arrow, store, batch_bytes))


@pytest.mark.parametrize("row_group_size", [10_000, 500])
def test_long_texts_that_repeat_are_read_a_few_at_a_time(local: Lake, row_group_size: int) -> None:
    texts = ["short", "x" * 100_000] * 5_000  # half a gigabyte of values, in some kilobytes
    local.write("a.parquet", {"text": texts}, row_group_size=row_group_size)
    found = batches(local, 32 * MIB)
    assert max(batch.nbytes for batch in found) <= 40 * MIB
    assert pa.Table.from_batches(found).column("text").to_pylist() == texts


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(["AAPL", "MSFT"] * 5_000, [10_000]), ([f"{n:0100}" for n in range(10_000)], [10_000])],
    ids=["repeated", "different"],
)
def test_short_texts_are_read_at_once(
    local: Lake, texts: Sequence[str], expected: list[int]
) -> None:
    local.write("a.parquet", {"text": texts}, row_group_size=1_000)
    assert [batch.num_rows for batch in batches(local, 8192 * MIB)] == expected
