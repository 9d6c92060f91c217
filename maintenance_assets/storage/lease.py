"""The lease: one maintainer per dataset, on any store, without conditional writes.

Each contender puts a file of its own into `_maintenance/leases/` and then lists that folder. If
anyone else is alive in it, the contender takes its file away and says who is there. Since every
contender lists after it has written, two can never both miss each other.
"""

import json
import logging
import os
import random
import socket
import threading
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from maintenance_assets.errors import LeaseHeldError, LeaseLostError
from maintenance_assets.storage.filesystems import Store

logger = logging.getLogger(__name__)

WORK_DIRECTORY = "_maintenance"
LEASES = f"{WORK_DIRECTORY}/leases"
LEASE_SECONDS = 120.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, with enough to tell whether that process is still alive."""

    run_id: str
    operation: str
    host: str
    pid: int
    process: str
    expires_at: float

    @classmethod
    def this_process(cls, run_id: str, operation: str, now: float) -> "Holder":
        """A lease for the process that is running."""
        pid = os.getpid()
        return cls(run_id, operation, _host(), pid, _process_mark(pid), now + LEASE_SECONDS)

    def is_alive(self, now: float) -> bool:
        """A dead process of this machine holds nothing; elsewhere only time can tell."""
        if self.host == _host() and os.name == "posix":
            return _process_mark(self.pid) == self.process
        return now < self.expires_at


class Lease:
    """Held inside a `with` block and kept alive by a heartbeat thread."""

    def __init__(self, store: Store, run_id: str, operation: str) -> None:
        self._store = store
        self._run_id = run_id
        self._operation = operation
        self._path = store.path(f"{LEASES}/{run_id}.json")
        self._stop = threading.Event()
        self._renewed_at = 0.0
        self._thread = threading.Thread(target=self._beat, name="lease-heartbeat", daemon=True)

    def __enter__(self) -> "Lease":
        self._acquire()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sweep()
        self._store.delete(self._path)
        self._store.remove_if_empty(self._store.path(LEASES))
        self._store.remove_if_empty(self._store.path(WORK_DIRECTORY))

    def ensure_held(self) -> None:
        """Raise unless this lease is surely still ours: call right before publishing."""
        late = time.monotonic() - self._renewed_at > LEASE_SECONDS
        if late or not self._store.exists(self._path):
            raise LeaseLostError(
                f"The lease on '{self._store.shown}' was lost (this process paused for more than "
                f"{LEASE_SECONDS:.0f} s or its lease file was removed). Nothing was published; "
                "run the operation again."
            )

    def _acquire(self) -> None:
        for attempt in range(_ATTEMPTS):
            self._renew()
            others = live_holders(self._store, besides=self._run_id)
            if not others:
                return
            self._store.delete(self._path)
            # Two that start at the same moment see each other: both step back, one comes first.
            time.sleep(random.uniform(0.05, 0.3) * (attempt + 1))
        holder = others[0]
        raise LeaseHeldError(
            f"'{self._store.shown}' is being maintained by another process: {holder.operation} "
            f"run {holder.run_id} on {holder.host.split('/')[0]}, pid {holder.pid}. Nothing was "
            "changed; try again when it has ended."
        )

    def _renew(self) -> None:
        holder = Holder.this_process(self._run_id, self._operation, time.time())
        renewed_at = time.monotonic()
        content = json.dumps(asdict(holder)).encode()
        try:
            self._store.write_durably(self._path, content)
        except FileNotFoundError:  # another holder swept up, or left, in this very moment
            self._store.write_durably(self._path, content)
        self._renewed_at = renewed_at

    def _sweep(self) -> None:
        """Half-written leases of killed processes; a living one writes its own again."""
        for listed in self._store.find(self._store.path(LEASES)):
            if ".json.tmp-" in listed.path:
                self._store.delete(listed.path)

    def _beat(self) -> None:
        while not self._stop.wait(LEASE_SECONDS / 4):
            try:
                if self._store.exists(self._path):
                    self._renew()
            except OSError as error:  # ensure_held decides whether it was too long
                logger.warning("could not renew the lease on %s: %s", self._store.shown, error)


def live_holders(store: Store, besides: str = "") -> list[Holder]:
    """Everyone who holds a lease on a dataset; leases of the dead are taken away."""
    holders = []
    for listed in store.find(store.path(LEASES)):
        if not listed.path.endswith(".json") or listed.path.endswith(f"/{besides}.json"):
            continue
        holder = _read_holder(store, listed.path)
        if holder is None:
            continue
        if holder.is_alive(time.time()):
            holders.append(holder)
        else:
            logger.info("taking over from a dead run: %s", holder)
            store.delete(listed.path)
    return sorted(holders, key=lambda holder: holder.run_id)


def _read_holder(store: Store, path: str) -> Holder | None:
    try:
        fields: dict[str, Any] = json.loads(store.read_bytes(path))
        return Holder(**fields)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise LeaseHeldError(
            f"The lease file '{path}' cannot be read ({error}). If no maintenance is running on "
            "this dataset, delete that file."
        ) from error


def _host() -> str:
    """This machine and, in containers, this process namespace."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}/{namespace}"


def _process_mark(pid: int) -> str:
    """Tells a process from a later one with the same number; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        # Field 3 is the state (a zombie does nothing any more), 22 the start time.
        return "" if fields[0] in "ZX" else f"start:{fields[19]}"
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
    except OSError:
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"
