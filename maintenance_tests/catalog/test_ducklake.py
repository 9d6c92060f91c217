"""What DuckDB 1.5 finds when it attaches a catalog as a DuckLake; expected rows by hand."""

import datetime as dt
import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy

from maintenance_assets import CatalogError, Lakehouse
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.ducklake import drop_views
from maintenance_assets.catalog.sequence import Place
from maintenance_assets.operations.lake_ducklake import DuckLakeAccess, ducklake_uri
from maintenance_tests.catalog.conftest import new_database
from maintenance_tests.ducklake_reader import (
    VERSION,
    DuckLakeReader,
    ForeignRefusalError,
    NotInstalledError,
    install_reader,
)


@pytest.fixture(scope="session")
def ducklake_python(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An environment with the newest DuckDB that has a DuckLake extension on PyPI."""
    cache = getattr(request.config, "cache", None)
    name = f"ducklake-{VERSION}"
    folder = cache.mkdir(name) if cache is not None else tmp_path_factory.mktemp(name)
    try:
        return install_reader(folder)
    except NotInstalledError as error:
        pytest.skip(f"DuckDB {VERSION} with DuckLake cannot be installed: {error}")


@pytest.fixture
def duck(ducklake_python: Path) -> Iterator[DuckLakeReader]:
    """A DuckDB that has nothing attached."""
    with DuckLakeReader(ducklake_python) as reader:
        yield reader


def _attach(duck: DuckLakeReader, house: Lakehouse) -> None:
    access = house.ducklake()
    assert access.left_out == {}
    duck.run(access.attach_sql())


def _number(duck: DuckLakeReader, dataset: str, version: int) -> int:
    """The snapshot that a version of a dataset is."""
    ((number,),) = duck.run(
        "SELECT snapshot_id FROM ducklake_snapshots('lake') "
        f"WHERE commit_extra_info LIKE '{dataset} version {version}: %'"
    ).rows
    return int(number)


def _two_datasets(house: Lakehouse) -> None:
    """Versions 0 to 3 of prices and 0 to 2 of trades, taking turns."""
    prices = house.create_dataset("prices", {"k": pa.int64(), "price": pa.float64()})
    prices.append(pa.table({"k": [1, 2, 3], "price": [1.5, 2.5, None]}))
    trades = house.create_dataset(
        "trades", {"id": pa.int32(), "side": pa.string()}, partition_by=["side"]
    )
    trades.append(pa.table({"id": pa.array([10, 11], pa.int32()), "side": ["buy", "sell"]}))
    prices.delete("k = 2")
    trades.update("id = 11", {"side": "buy"})
    prices.upsert(pa.table({"k": [3, 4], "price": [3.5, 4.5]}), ["k"])


PRICES = [
    [],
    [(1, 1.5), (2, 2.5), (3, None)],
    [(1, 1.5), (3, None)],
    [(1, 1.5), (3, 3.5), (4, 4.5)],
]
TRADES = [[], [(10, "buy"), (11, "sell")], [(10, "buy"), (11, "buy")]]


def test_every_version_of_every_dataset_is_read_by_number(
    house: Lakehouse, duck: DuckLakeReader
) -> None:
    _two_datasets(house)
    _attach(duck, house)
    for version, rows in enumerate(PRICES):
        at = _number(duck, "prices", version)
        query = f"SELECT * FROM lake.prices AT (VERSION => {at}) ORDER BY k"
        assert duck.run(query).rows == rows
    for version, rows in enumerate(TRADES):
        at = _number(duck, "trades", version)
        query = f"SELECT * FROM lake.trades AT (VERSION => {at}) ORDER BY id"
        assert duck.run(query).rows == rows
    assert duck.run("FROM lake.prices ORDER BY k").rows == PRICES[-1]
    assert duck.run("FROM lake.trades ORDER BY id").rows == TRADES[-1]


def test_a_snapshot_shows_all_datasets_as_they_were_then(
    small: Lakehouse, duck: DuckLakeReader
) -> None:
    _two_datasets(small)
    _attach(duck, small)
    deleted, updated = _number(duck, "prices", 2), _number(duck, "trades", 2)
    assert (deleted, updated) == (5, 6)
    assert duck.run(f"FROM lake.trades AT (VERSION => {deleted}) ORDER BY id").rows == TRADES[1]
    assert duck.run(f"FROM lake.prices AT (VERSION => {updated}) ORDER BY k").rows == PRICES[2]
    with pytest.raises(ForeignRefusalError, match="trades does not exist at version 2"):
        duck.run("FROM lake.trades AT (VERSION => 2)")
    with pytest.raises(ForeignRefusalError, match="No snapshot found at version 99"):
        duck.run("FROM lake.trades AT (VERSION => 99)")


def test_every_version_is_read_by_its_time(house: Lakehouse, duck: DuckLakeReader) -> None:
    _two_datasets(house)
    moments = {c.version: c.committed_at for c in house.dataset("prices").history()}
    _attach(duck, house)
    for version, rows in enumerate(PRICES):
        at = moments[version]
        query = f"FROM lake.prices AT (TIMESTAMP => TIMESTAMPTZ '{at.isoformat()}') ORDER BY k"
        assert duck.run(query).rows == rows
    before = moments[1] - dt.timedelta(microseconds=1)
    query = f"FROM lake.prices AT (TIMESTAMP => TIMESTAMPTZ '{before.isoformat()}')"
    assert duck.run(query).rows == []


def test_columns_are_those_of_the_version(house: Lakehouse, duck: DuckLakeReader) -> None:
    data = house.create_dataset("d", {"a": pa.int32(), "b": pa.string(), "c": pa.date32()})
    day = dt.date(2020, 2, 29)
    data.append(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"], "c": [day]}))
    data.rename_column("b", "text")
    data.add_column("b", pa.float64())
    data.widen_column("a", pa.int64())
    data.append(pa.table({"a": [1 << 40], "text": ["y"], "c": [day], "b": [0.5]}))
    data.drop_column("text")
    data.add_column("text", pa.string())
    data.restore(1)
    _attach(duck, house)
    expected = {
        1: (["a", "b", "c"], [("1", "x", "2020-02-29")]),
        2: (["a", "text", "c"], [("1", "x", "2020-02-29")]),
        3: (["a", "text", "c", "b"], [("1", "x", "2020-02-29", None)]),
        5: (
            ["a", "text", "c", "b"],
            [("1", "x", "2020-02-29", None), (str(1 << 40), "y", "2020-02-29", "0.5")],
        ),
        7: (
            ["a", "c", "b", "text"],
            [("1", "2020-02-29", None, None), (str(1 << 40), "2020-02-29", "0.5", None)],
        ),
        8: (["a", "b", "c"], [("1", "x", "2020-02-29")]),
    }
    for version, (names, rows) in expected.items():
        query = f"FROM lake.d AT (VERSION => {_number(duck, 'd', version)})"
        assert duck.run(query).names == names
        assert duck.texts(f"{query} ORDER BY a") == rows
    types = [duck.run(f"FROM lake.d AT (VERSION => {v + 1})").types[0] for v in (3, 4)]
    assert types == ["INTEGER", "BIGINT"]


def test_rows_stay_where_files_are_merged(house: Lakehouse, duck: DuckLakeReader) -> None:
    data = house.create_dataset("d", {"k": pa.int64()})
    for k in (1, 2, 3):
        data.append(pa.table({"k": [k]}))
    assert data.compact().version == 4
    _attach(duck, house)
    query = "SELECT list(k ORDER BY k), count(DISTINCT filename) FROM lake.d"
    assert duck.run(f"{query} AT (VERSION => 4)").rows == [([1, 2, 3], 3)]
    assert duck.run(query).rows == [([1, 2, 3], 1)]


_AWAY = dt.timezone(dt.timedelta(hours=2))
LONG = "z" * 100


def _typed(rows: list[tuple[object, ...]]) -> pa.Table:
    fields = [
        ("i", pa.int64()),
        ("u", pa.uint64()),
        ("s", pa.string()),
        ("m", pa.decimal128(12, 3)),
        ("t", pa.timestamp("us", "UTC")),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("b", pa.bool_()),
        ("x", pa.binary()),
        ("n", pa.timestamp("ns")),
        ("h", pa.time64("us")),
        ("c", pa.dictionary(pa.int32(), pa.string())),
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, type_) for c, (_, type_) in zip(columns, fields, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


_EARLY = (
    -5,
    0,
    LONG + "a",
    Decimal("-1.500"),
    dt.datetime(1969, 1, 1, 2, tzinfo=_AWAY),
    float("nan"),
    dt.date(1900, 1, 1),
    False,
    b"\x00\xff",
    dt.datetime(2000, 1, 1),
    dt.time(1, 2, 3, 4),
    "one",
)
_LATE = (
    1 << 62,
    (1 << 64) - 1,
    LONG + "b",
    Decimal("999999999.999"),
    dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
    -0.0,
    dt.date(2100, 1, 1),
    True,
    b"",
    dt.datetime(2001, 1, 1),
    dt.time(23),
    "two",
)
_NULLS = (7, *[None] * 11)


@pytest.fixture(scope="module")
def typed(
    ducklake_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DuckLakeReader]:
    """Three files of one row each, attached."""
    folder = tmp_path_factory.mktemp("typed")
    with Lakehouse(f"sqlite:///{folder}/catalog.db") as house:
        data = house.create_dataset("typed", _typed([_EARLY]).schema)
        for row in (_EARLY, _LATE, _NULLS):
            data.append(_typed([row]))
        with DuckLakeReader(ducklake_python) as reader:
            _attach(reader, house)
            yield reader


def test_types_and_values_are_the_same(typed: DuckLakeReader) -> None:
    assert typed.run("FROM lake.typed LIMIT 0").types == [
        *("BIGINT", "UBIGINT", "VARCHAR", "DECIMAL(12,3)", "TIMESTAMP WITH TIME ZONE", "DOUBLE"),
        *("DATE", "BOOLEAN", "BLOB", "TIMESTAMP_NS", "TIME", "VARCHAR"),
    ]
    assert typed.texts("FROM lake.typed ORDER BY i") == [
        (
            *("-5", "0", LONG + "a", "-1.500", "1969-01-01 00:00:00+00", "nan", "1900-01-01"),
            *("false", "\\x00\\xFF", "2000-01-01 00:00:00", "01:02:03.000004", "one"),
        ),
        ("7", *[None] * 11),
        (
            *(str(1 << 62), str((1 << 64) - 1), LONG + "b", "999999999.999"),
            *("2030-01-01 00:00:00+00", "-0.0", "2100-01-01", "true", ""),
            *("2001-01-01 00:00:00", "23:00:00", "two"),
        ),
    ]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i < 0", [-5]),
        ("i = -5", [-5]),
        ("i >= 7", [7, 1 << 62]),
        ("i IN (7, 8)", [7]),
        ("i <> 7", [-5, 1 << 62]),
        ("u > 9223372036854775807", [1 << 62]),
        ("u = 0", [-5]),
        (f"s = '{LONG}a'", [-5]),
        (f"s > '{LONG}a'", [1 << 62]),
        (f"s >= '{LONG}a'", [-5, 1 << 62]),
        (f"s < '{LONG}aa'", [-5]),
        ("s LIKE 'zz%'", [-5, 1 << 62]),
        ("s IS NULL", [7]),
        ("s IS NOT NULL", [-5, 1 << 62]),
        ("m = -1.5", [-5]),
        ("m < 0", [-5]),
        ("m > 999999999.998", [1 << 62]),
        ("t < TIMESTAMPTZ '1970-01-01 00:00:00+00'", [-5]),
        ("t = TIMESTAMPTZ '2030-01-01 00:00:00+00'", [1 << 62]),
        ("f = 'nan'::DOUBLE", [-5]),
        ("f > 1e300", [-5]),
        ("f <= 0", [1 << 62]),
        ("f = 0", [1 << 62]),
        ("isnan(f)", [-5]),
        ("d < DATE '1950-01-01'", [-5]),
        ("b", [1 << 62]),
        ("NOT b", [-5]),
        ("x = ''::BLOB", [1 << 62]),
        ("n > TIMESTAMP_NS '2000-06-01'", [1 << 62]),
        ("h < TIME '02:00:00'", [-5]),
        ("c = 'one'", [-5]),
        ("c IN ('two', 'three')", [1 << 62]),
    ],
)
def test_filters_find_every_row(typed: DuckLakeReader, condition: str, expected: list[int]) -> None:
    query = f"SELECT i FROM lake.typed WHERE {condition} ORDER BY i"
    assert [row[0] for row in typed.run(query).rows] == expected


def test_extremes_and_counts_are_those_of_the_rows(typed: DuckLakeReader) -> None:
    query = "SELECT count(*), count(s), min(i), max(i), min(s), max(f), min(t) FROM lake.typed"
    assert typed.texts(query) == [
        ("3", "2", "-5", str(1 << 62), LONG + "a", "nan", "1969-01-01 00:00:00+00")
    ]
    assert typed.texts("SELECT count(*) FROM lake.typed AT (VERSION => 2)") == [("1",)]
    query = "SELECT i FROM lake.typed ORDER BY i DESC LIMIT 1"
    assert typed.run(query).rows == [(1 << 62,)]


def _plain(folder: Path, name: str, table: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)


def test_a_registered_directory_is_read_where_it_is(
    small: Lakehouse, duck: DuckLakeReader, tmp_path: Path
) -> None:
    root = tmp_path / "plain [x] %25 #'ü"
    _plain(root / "day=2020-01-02" / "place=a%20b", "one two.parquet", pa.table({"k": [1]}))
    hive_null = "__HIVE_DEFAULT_PARTITION__"
    _plain(root / "day=2020-01-03" / f"place={hive_null}", "x*?.parquet", pa.table({"k": [2]}))
    _plain(root / "day=2020-01-04" / "place=01", "a.parquet", pa.table({"k": [3], "new": ["n"]}))
    data = small.register("plain", root)
    data.append(
        pa.table({"k": [4], "new": [None], "day": ["2020-01-04"], "place": ["null"]}),
        merge_schema=True,
    )
    _attach(duck, small)
    query = "SELECT k, new, day, place FROM lake.plain"
    assert duck.texts(f"{query} ORDER BY k") == [
        ("1", None, "2020-01-02", "a b"),
        ("2", None, "2020-01-03", None),
        ("3", "n", "2020-01-04", "01"),
        ("4", None, "2020-01-04", "null"),
    ]
    assert duck.texts(f"{query} WHERE place = 'a b'") == [("1", None, "2020-01-02", "a b")]
    assert duck.texts(f"{query} WHERE place IS NULL") == [("2", None, "2020-01-03", None)]
    assert duck.texts(f"{query} WHERE day > '2020-01-03' ORDER BY k LIMIT 1") == [
        ("3", "n", "2020-01-04", "01")
    ]


def test_files_at_different_depths_get_their_own_values(
    small: Lakehouse, duck: DuckLakeReader, tmp_path: Path
) -> None:
    root = tmp_path / "plain"
    _plain(root / "p=1", "a.parquet", pa.table({"k": [1]}))
    _plain(root, "b.parquet", pa.table({"k": [2]}))
    small.register("plain", root)
    _attach(duck, small)
    assert duck.texts("SELECT k, p FROM lake.plain ORDER BY k") == [("1", "1"), ("2", None)]


def test_partitions_are_read_with_their_spelling(house: Lakehouse, duck: DuckLakeReader) -> None:
    data = house.create_dataset(
        "d", {"k": pa.int64(), "p": pa.string(), "q": pa.int32()}, partition_by=["p", "q"]
    )
    values = ["null", "NULL", "a/b", "a=b", "ü %", "", None]
    numbers = pa.array(range(7), pa.int32())
    data.append(pa.table({"k": list(range(7)), "p": values, "q": numbers}))
    data.compact()
    _attach(duck, house)
    expected = [(k, value, k) for k, value in enumerate(values)]
    assert duck.run("SELECT k, p, q FROM lake.d ORDER BY k").rows == expected
    assert duck.run("SELECT k FROM lake.d WHERE p = 'a/b'").rows == [(2,)]
    assert duck.run("SELECT k FROM lake.d WHERE p IS NULL").rows == [(6,)]
    assert duck.run("SELECT k FROM lake.d WHERE q > 4 ORDER BY k").rows == [(5,), (6,)]


@pytest.mark.parametrize(
    ("type_", "named"),
    [
        (pa.list_(pa.int64()), "list<"),
        (pa.struct([("y", pa.int8())]), "struct<y: int8>"),
        (pa.duration("s"), r"duration\[s\]"),
        (pa.float16(), "halffloat"),
        (pa.timestamp("ns", "UTC"), r"timestamp\[ns, tz=UTC\]"),
        (pa.decimal256(50, 2), "decimal256"),
    ],
)
def test_a_type_that_ducklake_lacks_leaves_the_dataset_out(
    small: Lakehouse, duck: DuckLakeReader, type_: pa.DataType, named: str
) -> None:
    small.create_dataset("odd", {"k": pa.int64(), "it": type_})
    small.create_dataset("even", data=pa.table({"k": [1]}))
    access = small.ducklake()
    assert list(access.left_out) == ["odd"]
    reason = access.left_out["odd"]
    assert reason.startswith("column it is ")
    assert re.search(named, reason)
    duck.run(access.attach_sql())
    assert duck.run("FROM lake.even").rows == [(1,)]
    with pytest.raises(ForeignRefusalError, match="odd does not exist"):
        duck.run("FROM lake.odd")


def test_a_dataset_is_there_while_its_columns_can_be_expressed(
    small: Lakehouse, duck: DuckLakeReader
) -> None:
    data = small.create_dataset("d", data=pa.table({"k": [1]}))
    data.add_column("tags", pa.list_(pa.string()))
    data.drop_column("tags")
    _attach(duck, small)
    assert duck.run("FROM lake.d").rows == [(1,)]
    assert duck.run("FROM lake.d AT (VERSION => 2)").rows == [(1,)]
    with pytest.raises(ForeignRefusalError, match="d does not exist at version 3"):
        duck.run("FROM lake.d AT (VERSION => 3)")


def test_numbers_that_became_text_leave_the_dataset_out(
    small: Lakehouse, duck: DuckLakeReader
) -> None:
    data = small.create_dataset("d", data=pa.table({"k": [1e20]}))
    with pytest.warns(UserWarning, match="both become text"):
        data.append(pa.table({"k": ["x"]}), on_mismatch="string")
    access = small.ducklake()
    assert access.left_out == {
        "d": "column k is string and in some files double, which DuckDB would turn into it "
        "otherwise"
    }
    duck.run(access.attach_sql())
    assert duck.run("FROM lake.d AT (VERSION => 2)").rows == [(1e20,)]
    with pytest.raises(ForeignRefusalError, match="d does not exist"):
        duck.run("FROM lake.d")


def test_text_that_duckdb_takes_for_null_leaves_the_dataset_out(
    small: Lakehouse, duck: DuckLakeReader, tmp_path: Path
) -> None:
    for name, value in (("misread", "NULL"), ("fine", "nullify")):
        _plain(tmp_path / name / f"p={value}", "a.parquet", pa.table({"k": [1]}))
        small.register(name, tmp_path / name)
    access = small.ducklake()
    assert access.left_out == {
        "misread": "column p is in paths only, and DuckDB takes the text null there for NULL"
    }
    duck.run(access.attach_sql())
    assert duck.run("FROM lake.fine").rows == [(1, "nullify")]


def test_a_root_that_names_a_path_column_leaves_the_dataset_out(
    small: Lakehouse, duck: DuckLakeReader, tmp_path: Path
) -> None:
    root = tmp_path / "p=outer" / "d"
    _plain(root / "p=inner", "a.parquet", pa.table({"k": [1]}))
    small.register("d", root)
    access = small.ducklake()
    assert access.left_out == {
        "d": "column p is in paths only, and the path of the dataset names it as well"
    }
    duck.run(access.attach_sql())
    with pytest.raises(ForeignRefusalError, match="d does not exist"):
        duck.run("FROM lake.d")


def test_names_that_differ_in_case_leave_both_datasets_out(
    small: Lakehouse, duck: DuckLakeReader, tmp_path: Path
) -> None:
    for number, name in enumerate(("Day", "day", "night")):
        small.create_dataset(name, path=tmp_path / str(number), data=pa.table({"k": [number]}))
    access = small.ducklake()
    assert access.left_out == {
        "Day": "another dataset has this name in another case",
        "day": "another dataset has this name in another case",
    }
    duck.run(access.attach_sql())
    assert duck.run("FROM lake.night").rows == [(2,)]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_an_attached_reader_sees_what_happens_meanwhile(
    request: pytest.FixtureRequest, tmp_path: Path, duck: DuckLakeReader, database: str
) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    if database == "postgresql":
        uri = new_database(request.getfixturevalue("postgres"))
    with Lakehouse(uri, tmp_path / "lake") as house:
        data = house.create_dataset("d", data=pa.table({"k": [1]}))
        other = house.create_dataset("other", data=pa.table({"k": [1]}))
        _attach(duck, house)
        assert duck.run("FROM lake.d").rows == [(1,)]
        data.overwrite(pa.table({"k": [2]}))
        assert duck.run("FROM lake.d").rows == [(2,)]
        data.add_column("new", pa.string())
        data.append(pa.table({"k": [3], "new": ["n"]}))
        assert duck.run("FROM lake.d ORDER BY k").rows == [(2, None), (3, "n")]
        assert duck.run("FROM lake.d AT (VERSION => 2)").rows == [(1,)]

        house.expire_snapshots(dt.timedelta(0), dataset="d")
        house.vacuum(dt.timedelta(0), dry_run=False, force=True)
        with pytest.raises(ForeignRefusalError, match="d does not exist at version 2"):
            duck.run("FROM lake.d AT (VERSION => 2)")
        assert duck.run("FROM lake.other AT (VERSION => 4)").rows == [(1,)]
        assert duck.run("FROM lake.d ORDER BY k").rows == [(2, None), (3, "n")]

        house.unregister(other.name)
        with pytest.raises(ForeignRefusalError, match="other does not exist"):
            duck.run("FROM lake.other")
        assert duck.run("FROM lake.d ORDER BY k").rows == [(2, None), (3, "n")]


_FOREIGN_WRITES = (
    "INSERT INTO lake.d VALUES (9)",
    "INSERT INTO lake.d SELECT range FROM range(1000)",
    "DELETE FROM lake.d",
    "UPDATE lake.d SET k = 5",
    "CREATE TABLE lake.made AS SELECT range FROM range(1000)",
    "CREATE TABLE lake.made (k INTEGER)",
    "CREATE SCHEMA lake.made",
    "DROP TABLE lake.d",
    "ALTER TABLE lake.d RENAME k TO z",
    "CALL ducklake_expire_snapshots('lake', older_than => now()::TIMESTAMP)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL lake.set_option('parquet_compression', 'zstd')",
)
_DELETES_OF_FILES = (
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)",
)


def _fingerprints(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_foreign_writes_are_refused_and_leave_nothing(
    house: Lakehouse, duck: DuckLakeReader, tmp_path: Path
) -> None:
    data = house.create_dataset("d", {"k": pa.int64()})
    for k in (1, 2):
        data.append(pa.table({"k": [k]}))
    house.create_dataset("left out", data=pa.table({"k": [[1]]}))
    attach = house.ducklake().attach_sql().removesuffix(" (READ_ONLY)")
    before = _fingerprints(tmp_path / "lake")
    duck.run(attach)
    for statement in _FOREIGN_WRITES:
        with pytest.raises(ForeignRefusalError):
            duck.run(statement)
    for statement in _DELETES_OF_FILES:
        assert duck.run(statement).rows == []
    assert duck.run("FROM lake.d ORDER BY k").rows == [(1,), (2,)]
    duck.run("DETACH lake")
    assert _fingerprints(tmp_path / "lake") == before
    assert house.fsck().problems == ()
    assert [commit.operation for commit in data.history()] == ["append", "append", "create"]
    assert data.read().to_pydict() == {"k": [1, 2]}


def test_writes_are_refused_where_duckdb_attaches_to_read(
    small: Lakehouse, duck: DuckLakeReader
) -> None:
    data = small.create_dataset("d", data=pa.table({"k": [1]}))
    data.append(pa.table({"k": [2]}))
    _attach(duck, small)
    for statement in _FOREIGN_WRITES:
        with pytest.raises(ForeignRefusalError):
            duck.run(statement)
    with pytest.raises(ForeignRefusalError, match="read-only"):
        duck.run("INSERT INTO lake.d VALUES (9)")


def test_a_catalog_without_datasets_is_attached(house: Lakehouse, duck: DuckLakeReader) -> None:
    _attach(duck, house)
    assert duck.run("SHOW TABLES FROM lake").rows == []


def test_a_catalog_of_the_first_layout_gets_its_sequence(
    house: Lakehouse, catalog_uri: str, tmp_path: Path, duck: DuckLakeReader
) -> None:
    _two_datasets(house)
    house.ducklake()
    house.close()
    _make_first_layout(catalog_uri)
    with Lakehouse(catalog_uri, tmp_path / "lake") as again:
        again.dataset("trades").append(pa.table({"id": pa.array([12], pa.int32()), "side": ["x"]}))
        _attach(duck, again)
        assert duck.run("FROM lake.prices ORDER BY k").rows == PRICES[3]
        assert duck.run("FROM lake.prices AT (VERSION => 5) ORDER BY k").rows == PRICES[2]
        assert duck.run("FROM lake.trades AT (VERSION => 6) ORDER BY id").rows == TRADES[2]
        rows = [*TRADES[2], (12, "x")]
        assert duck.run("FROM lake.trades AT (VERSION => 8) ORDER BY id").rows == rows


def _make_first_layout(catalog_uri: str) -> None:
    database = Database(catalog_uri)
    statements = (
        "ALTER TABLE lake_commit DROP COLUMN sequence",
        "ALTER TABLE lake_name_mapping DROP COLUMN type",
        "DELETE FROM lake_catalog WHERE name IN ('last_commit', 'past_changes')",
        "UPDATE lake_catalog SET value = '1' WHERE name = 'schema_version'",
    )

    def work(connection: sqlalchemy.Connection) -> None:
        drop_views(connection)
        for statement in statements:
            connection.execute(sqlalchemy.text(statement))

    database.write(work)
    database.close()


def test_a_place_is_behind_all_earlier_ones_whatever_the_clock_says() -> None:
    place = Place(7, 1000)
    assert place.next(1500) == Place(8, 1500)
    assert place.next(1000) == Place(8, 1001)
    assert place.next(3) == Place(8, 1001)


def test_a_duckdb_file_of_the_newest_format_is_refused_with_a_remedy(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "catalog.db"
    with duckdb.connect(str(path), config={"storage_compatibility_version": "v2.0.0"}) as made:
        made.execute("CREATE TABLE anything (k INTEGER)")
    with (
        Lakehouse(f"duckdb:///{path}", tmp_path / "lake") as house,
        pytest.raises(CatalogError, match=r"format v2\.0\.0.*COPY FROM DATABASE"),
    ):
        house.ducklake()


def test_the_address_of_a_server_has_no_password() -> None:
    url = sqlalchemy.make_url("postgresql://me:secret@db.example:5433/the%20lake?sslmode=require")
    assert ducklake_uri(url) == (
        "ducklake:postgres:dbname='the lake' host=db.example port=5433 user=me sslmode=require"
    )
    assert DuckLakeAccess("ducklake:postgres:dbname='it'").attach_sql('my "lake"') == (
        "ATTACH 'ducklake:postgres:dbname=''it''' AS \"my \"\"lake\"\"\" (READ_ONLY)"
    )


_BOUNDED = pa.schema([("i", pa.int64()), ("j", pa.int8()), ("u", pa.uint32()), ("s", pa.string())])
_BOUNDED_ROWS = (
    (-(1 << 63), -128, 0, "a"),
    ((1 << 63) - 1, 127, (1 << 32) - 1, "b" * 16),
    (-1, -1, 5, "naïve"),
    (0, 0, 7, "it's"),
    (None, None, None, None),
    (5, 5, 5, "b" * 15),
    (6, 6, 6, ""),
)


def test_files_that_cannot_hold_a_row_are_not_opened(
    house: Lakehouse, duck: DuckLakeReader
) -> None:
    data = house.create_dataset("d", _BOUNDED)
    for row in _BOUNDED_ROWS:
        arrays = [pa.array([v], f.type) for v, f in zip(row, _BOUNDED, strict=True)]
        data.append(pa.table(arrays, schema=_BOUNDED))
    data.add_column("later", pa.int64())
    _attach(duck, house)
    # Nothing is known of the file of nulls, nor of texts that are long, empty or not plain.
    for condition, expected, files in (
        ("i < 0", [-(1 << 63), -1], 3),
        ("i = -1", [-1], 2),
        ("i > 5", [6, (1 << 63) - 1], 3),
        ("j < -100", [-(1 << 63)], 2),
        ("u > 7", [(1 << 63) - 1], 2),
        ("i IN (5, 6)", [5, 6], 3),
        (f"s = '{'b' * 15}'", [5], 5),
        (f"s = '{'b' * 16}'", [(1 << 63) - 1], 4),
        ("s = 'naïve'", [-1], 4),
        ("s = 'it''s'", [0], 5),
        ("s = ''", [6], 4),
        ("s < 'aa'", [-(1 << 63), 6], 5),
        ("i IS NULL", [None], 7),
        ("later IS NULL AND i = 6", [6], 2),
    ):
        query = f"SELECT i FROM lake.d WHERE {condition} ORDER BY i"
        assert [row[0] for row in duck.run(query).rows] == expected, condition
        assert _files_read(duck, query) == files, condition


def _files_read(duck: DuckLakeReader, query: str) -> int:
    ((_, plan),) = duck.run(f"EXPLAIN ANALYZE {query}").rows
    found = re.search(r"Total Files Read: (\d+)", plan)
    assert found is not None
    return int(found[1])
