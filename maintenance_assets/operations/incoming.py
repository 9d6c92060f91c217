"""Data as users hold it, as batches of bounded size."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

MAX_BATCH_ROWS = 64 * 1024
_ACCEPTED = (
    "a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a polars or pandas DataFrame, a "
    "Spark DataFrame, anything with an Arrow C stream, a dict of columns or a list of dicts"
)


def incoming(data: Any) -> pa.RecordBatchReader:
    """A stream of what was given; categories come as their values."""
    return _decoded(_reader(data))


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader(MAX_BATCH_ROWS)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data]).to_reader(MAX_BATCH_ROWS)
    # Told by their home: importing that module loads pandas.
    if any(kind.__module__ == "pyarrow._dataset" for kind in type(data).__mro__):
        return (data.scanner() if hasattr(data, "scanner") else data).to_reader()
    if isinstance(data, dict):
        return pa.table(data).to_reader(MAX_BATCH_ROWS)
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        return pa.Table.from_pylist(data).to_reader(MAX_BATCH_ROWS)
    return _foreign(data)


def _foreign(data: Any) -> pa.RecordBatchReader:
    """Objects of libraries that need not be installed, told by where they come from."""
    home = type(data).__module__.partition(".")[0]
    kind = type(data).__name__
    if (home, kind) == ("polars", "LazyFrame"):
        data, kind = data.collect(), "DataFrame"
    if (home, kind) == ("polars", "DataFrame"):
        return data.to_arrow().to_reader(MAX_BATCH_ROWS)
    if (home, kind) == ("pandas", "DataFrame"):
        return pa.Table.from_pandas(data).to_reader(MAX_BATCH_ROWS)
    if is_spark_frame(data):
        return data.toArrow().to_reader(MAX_BATCH_ROWS)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise ValueError(f"data must be {_ACCEPTED}, got {home}.{kind}")


def is_spark_frame(data: Any) -> bool:
    """Whether that is a DataFrame of Spark, classic or Connect."""
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pyspark" and kind.__name__ == "DataFrame"


def _decoded(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Without dictionaries and without metadata of whole tables: a dataset holds values."""
    fields = [_plain(field) for field in reader.schema]
    schema = pa.schema(fields)
    if schema.equals(reader.schema, check_metadata=True):
        return reader

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [
                column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                for column in batch.columns
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plain(field: Any) -> Any:
    if pa.types.is_dictionary(field.type):
        # What libraries note beside a category is about its dictionary.
        return field.with_type(field.type.value_type).with_metadata(None)
    return field
