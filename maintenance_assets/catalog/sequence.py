"""One order of the commits of all datasets, for those who see a catalog as a whole."""

from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.locking import lock_catalog

LAST_COMMIT = "last_commit"
PAST_CHANGES = "past_changes"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a commit stands among those of all datasets: its number, and its time."""

    sequence: int
    committed_at: int

    @property
    def text(self) -> str:
        """As the catalog keeps it."""
        return f"{self.sequence} {self.committed_at}"

    def next(self, moment: int) -> "Place":
        """The place behind it: never earlier than that moment, and later than this one."""
        return Place(self.sequence + 1, max(moment, self.committed_at + 1))


def next_place(connection: Connection, moment: int) -> Place:
    """The place of a commit, held to the end of its transaction: later ones come behind it."""
    row = t.catalog.c
    named = row.name == LAST_COMMIT
    # Written before it is read, so that two transactions cannot read the same place.
    connection.execute(update(t.catalog).where(named).values(value=row.value))
    found = str(connection.execute(select(row.value).where(named)).scalar_one())
    sequence, committed_at = (int(part) for part in found.split())
    place = Place(sequence, committed_at).next(moment)
    connection.execute(update(t.catalog).where(named).values(value=place.text))
    return place


def past_changed(connection: Connection) -> None:
    """Note that earlier versions are not what they were: some expired, or a dataset is gone."""
    lock_catalog(connection, PAST_CHANGES)
