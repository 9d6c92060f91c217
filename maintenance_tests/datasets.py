"""Small datasets for tests: written, hashed, read and compacted on any store."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets import CompactionResult, compact

OWN_NAME = r"compact-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.parquet"


@dataclass(frozen=True, slots=True)
class Lake:
    """A dataset root on some store."""

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _place(self) -> tuple[Any, str]:
        fs, root = fsspec.core.url_to_fs(self.url, **self.storage_options)
        fs.invalidate_cache()
        return fs, root.rstrip("/")

    def path(self, name: str) -> str:
        """The path of something below the root, as the store spells it."""
        return f"{self._place[1]}/{name}"

    def below(self, name: str) -> "Lake":
        """A directory of this lake as a root of its own."""
        return Lake(f"{self.url.rstrip('/')}/{name}", self.storage_options)

    def put(self, name: str, content: bytes) -> None:
        """Write bytes."""
        fs, root = self._place
        fs.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        fs.pipe_file(f"{root}/{name}", content)

    def get(self, name: str) -> bytes:
        """Read bytes."""
        fs, root = self._place
        return bytes(fs.cat_file(f"{root}/{name}"))

    def write(self, name: str, table: Any, **options: Any) -> None:
        """Write a table (or a dict of columns) as one Parquet file."""
        self.put(name, parquet_bytes(table, **options))

    def tree(self) -> dict[str, str]:
        """The hash of every file, hidden ones too, by its name below the root."""
        fs, root = self._place
        return {
            path[len(root) + 1 :]: hashlib.sha256(fs.cat_file(path)).hexdigest()
            for path in fs.find(root)
        }

    def files(self, directory: str = "") -> list[str]:
        """Names of the data files below a directory, as a `**/*.parquet` reader sees them."""
        prefix = f"{directory}/" if directory else ""
        return [
            name
            for name in sorted(self.tree())
            if name.startswith(prefix)
            and name.endswith(".parquet")
            and not any(part.startswith(("_", ".")) for part in name.split("/"))
        ]

    def only_file(self, directory: str = "") -> str:
        """The name of the single data file."""
        (name,) = self.files(directory)
        return name

    def open(self, name: str) -> Any:
        """A data file for inspection."""
        return pq.ParquetFile(pa.BufferReader(self.get(name)))

    def read(self, directory: str = "") -> Any:
        """All rows below a directory in the order of file names; schemas must agree."""
        return pa.concat_tables([self.open(name).read() for name in self.files(directory)])

    def column(self, name: str, directory: str = "") -> list[Any]:
        """The values of one column, in the order of file names."""
        tables = [self.open(file).read() for file in self.files(directory)]
        return [value for table in tables for value in table.column(name).to_pylist()]

    def total_bytes(self) -> int:
        """Bytes of the data files."""
        return sum(len(self.get(name)) for name in self.files())

    def compact(self, engine: str, **options: Any) -> CompactionResult:
        """Compact this lake."""
        return compact(
            self.url, engine=engine, storage_options=dict(self.storage_options) or None, **options
        )


def parquet_bytes(table: Any, **options: Any) -> bytes:
    """A table (or a dict of columns) as the bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.table(table) if isinstance(table, dict) else table, sink, **options)
    return sink.getvalue()


def one_row_files(lake: Lake, count: int, directory: str = "", start: int = 0) -> None:
    """Files of one row each, with ids from `start`."""
    prefix = f"{directory}/" if directory else ""
    for number in range(start, start + count):
        lake.write(f"{prefix}part-{number:05}.parquet", {"id": [number], "name": [f"n{number}"]})


def assert_same_table(actual: Any, expected: Any) -> None:
    """Equal schemas with all metadata, equal values bit for bit."""
    assert actual.schema.equals(expected.schema, check_metadata=True), (
        f"{actual.schema.to_string()}\n--- instead of ---\n{expected.schema.to_string()}"
    )
    assert_same_values(actual, expected)


def assert_same_values(actual: Any, expected: Any) -> None:
    """Equal column names and types, equal values bit for bit."""
    assert actual.column_names == expected.column_names
    for name in expected.column_names:
        left, right = _whole(actual.column(name)), _whole(expected.column(name))
        left.validate(full=True)
        assert left.type == right.type
        assert left.is_null().equals(right.is_null())
        assert _comparable(left) == _comparable(right), f"column {name}"


def _whole(column: Any) -> Any:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _comparable(array: Any) -> Any:
    if pa.types.is_floating(array.type):
        # As integers: NaN equals itself and -0.0 differs from 0.0.
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[array.type.bit_width]
        return array.view(bits).to_pylist()
    if pa.types.is_temporal(array.type) and not pa.types.is_interval(array.type):
        width = pa.int32() if array.type.bit_width == 32 else pa.int64()
        return array.view(width).to_pylist()
    return array.to_pylist()


def split_in_two(lake: Lake, table: Any, directory: str = "", **options: Any) -> Any:
    """Write a table as two files; returns what a reader sees of them."""
    half = (table.num_rows + 1) // 2
    prefix = f"{directory}/" if directory else ""
    lake.write(f"{prefix}part-0.parquet", table.slice(0, half), **options)
    lake.write(f"{prefix}part-1.parquet", table.slice(half), **options)
    return lake.read(directory)


def row_counts(lake: Lake, names: Sequence[str]) -> list[int]:
    """Rows of each file."""
    return [lake.open(name).metadata.num_rows for name in names]
