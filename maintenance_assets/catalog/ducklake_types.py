"""Arrow types as DuckLake calls them, told from their names in SQL."""

_SAME = {
    **{name: name for name in ("int8", "int16", "int32", "int64")},
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64")},
    "bool": "boolean",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date",
    "date64[ms]": "date",
    "time32[s]": "time",
    "time32[ms]": "time",
    "time64[us]": "time",
    # Parquet has no seconds: files hold milliseconds, which are read as seconds without loss.
    "timestamp[s]": "timestamp_s",
    "timestamp[ms]": "timestamp_ms",
    "timestamp[us]": "timestamp",
    "timestamp[ns]": "timestamp_ns",
    **dict.fromkeys(("string", "large_string", "string_view"), "varchar"),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "blob"),
}
_STARTS = {
    # Moments stay the same moments; which zone they were written in is not kept.
    **{f"timestamp[{unit}, tz=": "timestamptz" for unit in ("s", "ms", "us")},
    "dictionary<values=string, ": "varchar",
    "dictionary<values=large_string, ": "varchar",
    "fixed_size_binary[": "blob",
}
_DECIMALS = ("decimal32(", "decimal64(", "decimal128(")
_FAMILIES = {
    "number": ("int", "uint", "float", "decimal"),
    "moment": ("date", "timestamp_", "timestamp"),
}


def ducklake_type(arrow: str) -> str:
    """SQL for the name of a type, from SQL for its Arrow name; NULL where DuckLake has none.

    Nanoseconds with a zone, durations, half floats and nested types have none.
    """
    cases = [f"WHEN {arrow} = '{name}' THEN '{type_}'" for name, type_ in _SAME.items()]
    cases += [f"WHEN {_starts(arrow, start)} THEN '{type_}'" for start, type_ in _STARTS.items()]
    for start in _DECIMALS:
        short = f"replace(replace({arrow}, '{start}', 'decimal('), ', ', ',')"
        positive = f"replace({arrow}, '-', '') = {arrow}"
        cases.append(f"WHEN {_starts(arrow, start)} AND {positive} THEN {short}")
    return f"CASE {' '.join(cases)} END"


def type_family(type_: str) -> str:
    """SQL for what types have in common whose values DuckDB turns into each other as we do."""
    cases = [f"WHEN {type_} = 'timestamptz' THEN 'timestamptz'"]
    for family, starts in _FAMILIES.items():
        cases += [f"WHEN {_starts(type_, start)} THEN '{family}'" for start in starts]
    return f"CASE {' '.join(cases)} ELSE {type_} END"


def _starts(text: str, start: str) -> str:
    # LIKE has wildcards, which drivers and databases each treat in their own way.
    return f"substr({text}, 1, {len(start)}) = '{start}'"
