"""How outputs are encoded: as their sources were, wherever these agree."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from maintenance_assets.model.files import DICTIONARY, DataFile
from maintenance_assets.model.plans import WriterOptions


def writer_options(files: Sequence[DataFile], compression: str | None) -> WriterOptions:
    """Traits of the sources that the outputs keep; `compression` overrides every codec."""
    schemas = {file.schema.fingerprint: file.schema for file in files}.values()
    leaves = [leaf for schema in schemas for leaf in schema.leaves]
    main = compression or _main_codec(files)
    return WriterOptions(
        codec=main,
        column_codecs=() if compression else _column_codecs(files, main),
        column_encodings=_column_encodings(files),
        store_arrow_schema=any(schema.stores_arrow_schema for schema in schemas),
        int96_timestamps=any(leaf.startswith("INT96") for leaf in leaves),
        decimals_as_integers=any(
            leaf.startswith(("INT32", "INT64")) and "Decimal" in leaf for leaf in leaves
        ),
        times_in_utc=any("Time(isAdjustedToUTC=true" in leaf for leaf in leaves),
        sorting=files[0].sorting if keeps_sorting(files) else (),
        page_index=any(file.has_page_index for file in files),
    )


def keeps_sorting(files: Sequence[DataFile]) -> bool:
    """A declared order holds inside a row group; of several, only one after the other is left."""
    return len(files) == 1 and files[0].row_group_count <= 1


def notation_notes(files: Sequence[DataFile]) -> tuple[str, ...]:
    """What encoding anew makes visible to readers that take the old notation literally."""
    schemas = {file.schema.fingerprint: file.schema for file in files}.values()
    paths = dict.fromkeys(path for schema in schemas for path in schema.old_timestamps)
    return tuple(
        f"column {path!r}: timestamps in Parquet's old notation alone, which means UTC, come out "
        "as timestamps in UTC; DuckDB and Polars took them for ones without a zone"
        for path in paths
    )


def _main_codec(files: Sequence[DataFile]) -> str:
    """The codec that most bytes are in."""
    weights: Counter[str] = Counter()
    for file in files:
        for codec in file.codecs:
            weights[codec] += file.size_bytes
    return min(weights, key=lambda codec: (-weights[codec], codec), default="none")


def _column_codecs(files: Sequence[DataFile], main: str) -> tuple[tuple[str, str], ...]:
    """Columns whose codec is the same in every file, but not the main one."""
    agreed = _agreed(files, [file.codecs for file in files])
    return tuple((path, codec) for path, codec in agreed if codec != main)


def _column_encodings(files: Sequence[DataFile]) -> tuple[tuple[str, str], ...]:
    """Columns that were written without a dictionary everywhere: one would only cost space."""
    agreed = _agreed(files, [file.encodings for file in files])
    return tuple((path, encoding) for path, encoding in agreed if encoding != DICTIONARY)


def _agreed(files: Sequence[DataFile], traits: Sequence[tuple[str, ...]]) -> list[tuple[str, str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file, values in zip(files, traits, strict=True):
        if file.row_group_count:  # a file without data shows nothing
            for path, value in zip(file.schema.leaf_paths, values, strict=True):
                found[path].add(value)
    return [(path, min(values)) for path, values in found.items() if len(values) == 1]
