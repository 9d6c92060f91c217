"""Whatever is done to a dataset, it holds the rows that a plain list would hold."""

import tempfile
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from maintenance_assets import Lakehouse

NOW = timedelta(0)
VALUES: dict[Any, list[Any]] = {
    pa.int32(): [None, 0, 1, -5, 2**31 - 1],
    pa.int64(): [None, 0, 1, -5, 2**40],
    pa.float64(): [None, float("nan"), 0.0, -0.0, 1.5, float("inf"), -2.0],
    pa.string(): [None, "", "a", "z" * 70, "z" * 70 + "x", "é", "\U0010ffff" * 20, "x=y"],
}
PARTITIONS = ["a", "b/c", "", None]
NAMES = ("c1", "c2", "c3")
OPERATORS = ("=", "<>", "<", ">=")
LITERALS = {pa.string(): ["'a'", f"'{'z' * 70}'", "'é'"]}
Row = dict[str, Any]


def same(value: Any) -> str:
    """Equal for values that are one: any NaN, and the two zeros."""
    return repr(0.0 if value == 0 and isinstance(value, float) else value)


def shown(rows: list[Row]) -> list[list[tuple[str, str]]]:
    """Rows in an order, with their values in a form that can be compared."""
    return sorted(sorted((name, same(value)) for name, value in row.items()) for row in rows)


class Model(RuleBasedStateMachine):
    """A dataset of a catalog beside a list of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.house = Lakehouse(f"sqlite:///{self.folder.name}/catalog.db")
        schema = {"id": "int64", "p": "string"}
        self.dataset = self.house.create_dataset("d", schema, partition_by=["p"])
        self.types: dict[str, Any] = {"id": pa.int64(), "p": pa.string()}
        self.rows: list[Row] = []
        self.next = 0
        self.versions: dict[int, tuple[list[Row], dict[str, Any]]] = {}
        self.keep()

    def teardown(self) -> None:
        assert self.house.fsck().problems == ()
        self.house.close()
        self.folder.cleanup()

    def keep(self) -> None:
        """Note the version as it should be."""
        rows = [dict(row) for row in self.rows]
        self.versions[self.dataset.version] = (rows, dict(self.types))

    def others(self) -> list[str]:
        """Columns that may go or change."""
        return [name for name in self.types if name in NAMES]

    def value(self, data: Any, name: str) -> Any:
        """Some value of a column."""
        values = PARTITIONS if name == "p" else VALUES[self.types[name]]
        return data.draw(st.sampled_from(values))

    def table(self, rows: list[Row]) -> pa.Table:
        """Rows in the types of the dataset."""
        names = list(rows[0])
        arrays = [pa.array([row[name] for row in rows], self.types[name]) for name in names]
        return pa.table(dict(zip(names, arrays, strict=True)))

    # -- rows ---------------------------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 5))
    def append(self, data: Any, count: int) -> None:
        there = ["id", "p", *(n for n in self.others() if data.draw(st.booleans()))]
        new = [{name: self.value(data, name) for name in there} for _ in range(count)]
        for number, row in enumerate(new, self.next):
            row["id"] = number
        self.next += count
        self.dataset.append(self.table(new), row_group_rows=2)
        self.rows += [{name: row.get(name) for name in self.types} for row in new]
        self.keep()

    @rule(number=st.integers(0, 12))
    def delete(self, number: int) -> None:
        self.dataset.delete(f"id = {number} OR id = {number + 3}")
        self.rows = [row for row in self.rows if row["id"] not in (number, number + 3)]
        self.keep()

    @rule(data=st.data(), number=st.integers(0, 12))
    def update(self, data: Any, number: int) -> None:
        name = data.draw(st.sampled_from(["p", *self.others()]))
        value = self.value(data, name)
        self.dataset.update(f"id >= {number}", {name: value})
        self.rows = [{**row, name: value} if row["id"] >= number else row for row in self.rows]
        self.keep()

    @rule(data=st.data(), number=st.integers(0, 12))
    def upsert(self, data: Any, number: int) -> None:
        new = {"id": number, "p": self.value(data, "p")}
        found = [row for row in self.rows if row["id"] == number]
        self.dataset.upsert(self.table([new]), ["id"])
        self.rows = [{**row, **new} if row["id"] == number else row for row in self.rows]
        if not found:
            self.rows.append({name: new.get(name) for name in self.types})
            self.next = max(self.next, number + 1)
        self.keep()

    @rule(data=st.data())
    def overwrite_partition(self, data: Any) -> None:
        new = {name: self.value(data, name) for name in self.types}
        new["id"] = self.next
        self.next += 1
        self.dataset.overwrite(self.table([new]), dynamic=True)
        kept = [row for row in self.rows if row["p"] != new["p"]]
        self.rows = [*(kept if self.dataset.partition_by else []), new]
        self.keep()

    # -- columns ------------------------------------------------------------------------------

    @precondition(lambda self: len(self.others()) < len(NAMES))
    @rule(data=st.data(), type_=st.sampled_from(list(VALUES)))
    def add(self, data: Any, type_: Any) -> None:
        name = data.draw(st.sampled_from([n for n in NAMES if n not in self.types]))
        self.dataset.add_column(name, type_)
        self.types[name] = type_
        self.rows = [{**row, name: None} for row in self.rows]
        self.keep()

    @precondition(lambda self: self.others())
    @rule(data=st.data())
    def drop(self, data: Any) -> None:
        name = data.draw(st.sampled_from(self.others()))
        self.dataset.drop_column(name)
        del self.types[name]
        self.rows = [{n: v for n, v in row.items() if n != name} for row in self.rows]
        self.keep()

    @precondition(lambda self: self.others() and len(self.others()) < len(NAMES))
    @rule(data=st.data())
    def rename(self, data: Any) -> None:
        old = data.draw(st.sampled_from(self.others()))
        new = data.draw(st.sampled_from([n for n in NAMES if n not in self.types]))
        self.dataset.rename_column(old, new)
        self.types[new] = self.types.pop(old)
        self.rows = [{new if n == old else n: v for n, v in row.items()} for row in self.rows]
        self.keep()

    @precondition(lambda self: any(self.types[n] == pa.int32() for n in self.others()))
    @rule()
    def widen(self) -> None:
        name = next(n for n in self.others() if self.types[n] == pa.int32())
        self.dataset.widen_column(name, pa.int64())
        self.types[name] = pa.int64()
        self.keep()

    # -- files and versions -------------------------------------------------------------------

    @rule()
    def compact(self) -> None:
        self.dataset.compact()
        self.keep()

    @rule(data=st.data())
    def optimize(self, data: Any) -> None:
        self.dataset.optimize([data.draw(st.sampled_from(["id", *self.others()]))])
        self.keep()

    @rule(by=st.sampled_from([(), ("p",)]))
    def repartition(self, by: tuple[str, ...]) -> None:
        self.dataset.repartition(by)
        self.keep()

    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        rows, types = self.versions[version]
        self.dataset.restore(version)
        self.rows, self.types = [dict(row) for row in rows], dict(types)
        self.keep()

    @rule()
    def vacuum(self) -> None:
        self.house.expire_snapshots(NOW)
        self.house.vacuum(NOW, dry_run=False, force=True)
        self.versions.clear()
        self.keep()

    # -- what must hold -----------------------------------------------------------------------

    @invariant()
    def all_rows_are_there(self) -> None:
        assert shown(self.dataset.read().to_pylist()) == shown(self.rows)

    @rule(data=st.data())
    def older_versions_are_as_they_were(self, data: Any) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        assert shown(self.dataset.read(version=version).to_pylist()) == shown(
            self.versions[version][0]
        )

    @rule(data=st.data(), negated=st.booleans())
    def a_condition_finds_what_a_whole_scan_finds(self, data: Any, negated: bool) -> None:
        name = data.draw(st.sampled_from(list(self.types)))
        literals = LITERALS.get(self.types[name], ["0", "1", "-5"])
        operator = data.draw(st.sampled_from(OPERATORS))
        where = f"{name} {operator} {data.draw(st.sampled_from(literals))}"
        where = data.draw(st.sampled_from([where, f"{where} OR id = 1", f"{name} IS NULL"]))
        where = f"NOT ({where})" if negated else where
        everything = duckdb.connect().from_arrow(self.dataset.read())
        expected = shown(everything.filter(where).to_arrow_table().to_pylist())
        assert shown(self.dataset.read(where=where).to_pylist()) == expected, where
        later = self.dataset.to_duckdb().filter(where).to_arrow_table()
        assert shown(later.to_pylist()) == expected, where


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=4,
    stateful_step_count=14,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
