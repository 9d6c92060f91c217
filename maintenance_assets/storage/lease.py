"""The lease: one maintainer per dataset, on any store, without conditional writes.

Each contender puts a file of its own into `_maintenance/leases/` and then lists that folder. If
anyone else is alive in it, the contender takes its file away and says who is there. Since every
contender lists after it has written, two can never both miss each other.
"""

import contextlib
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

from maintenance_assets.errors import LeaseHeldError, LeaseLostError, UnsupportedDatasetError
from maintenance_assets.storage import local_paths
from maintenance_assets.storage.filesystems import Store

logger = logging.getLogger(__name__)

WORK_DIRECTORY = "_maintenance"
LEASES = f"{WORK_DIRECTORY}/leases"
LEASE_SECONDS = 120.0
CLOCK_GRACE_SECONDS = 480.0
"""How wrong the clock of another machine may be before its lease is taken for dead."""
_LOOK_SECONDS = 5.0
_ATTEMPTS = 3
_WRITE_ATTEMPTS = 50


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
        return now < self.expires_at + CLOCK_GRACE_SECONDS

    def describe(self) -> str:
        """Who and where, for a message."""
        where = self.host.split("/")[0]
        return f"{self.operation} run {self.run_id} on {where}, pid {self.pid}"


class Lease:
    """Held inside a `with` block and kept alive by a heartbeat thread."""

    def __init__(self, store: Store, run_id: str, operation: str) -> None:
        self._store = store
        self._run_id = run_id
        self._operation = operation
        self._path = store.path(f"{LEASES}/{run_id}.json")
        self._stop = threading.Event()
        self._renewed_at = 0.0
        self._expires_at = 0.0
        self._seen_at = 0.0
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
        try:
            self._sweep()
        finally:
            self._store.delete(self._path)
        self._store.remove_if_empty(self._store.path(LEASES))
        self._store.remove_if_empty(self._store.path(WORK_DIRECTORY))

    def ensure_held(self) -> None:
        """Raise unless this lease is surely still ours: call right before publishing."""
        # Two clocks: one does not jump, the other goes on while the machine is asleep.
        late = _now() - self._renewed_at > LEASE_SECONDS or time.time() > self._expires_at
        if late or not self._is_there():
            raise LeaseLostError(
                f"The lease on '{self._store.shown}' was lost (this process paused for more than "
                f"{LEASE_SECONDS:.0f} s or its lease file was removed). Nothing was published; "
                "run the operation again."
            )

    def _is_there(self) -> bool:
        """Whether the lease file still exists; a store is asked every few seconds at most."""
        if _now() - self._seen_at > _LOOK_SECONDS or self._store.is_local:
            if not self._store.exists(self._path):
                return False
            self._seen_at = _now()
        return True

    def _acquire(self) -> None:
        self._refuse_link()
        for attempt in range(_ATTEMPTS):
            self._renew()
            try:
                others = live_holders(self._store, besides=self._run_id)
            except BaseException:
                self._store.delete(self._path)
                raise
            if not others:
                return
            self._store.delete(self._path)
            # Two that start at the same moment see each other: both step back, one comes first.
            time.sleep(random.uniform(0.05, 0.3) * (attempt + 1))
        holder = others[0]
        raise LeaseHeldError(
            f"'{self._store.shown}' is being maintained by another process: {holder.describe()}. "
            "Nothing was changed; try again when it has ended."
        )

    def _refuse_link(self) -> None:
        """What is in there is moved and deleted: it must be in the dataset."""
        if not self._store.is_local:
            return
        linked = local_paths.linked_folder(self._store.root, (LEASES,))
        if linked is not None:
            raise UnsupportedDatasetError(
                f"'{linked}' is behind a symbolic link. Nothing was touched: remove the link"
            )

    def _renew(self) -> None:
        holder = Holder.this_process(self._run_id, self._operation, time.time())
        renewed_at = _now()
        self._write(json.dumps(asdict(holder)).encode())
        self._renewed_at, self._expires_at = renewed_at, holder.expires_at

    def _write(self, content: bytes) -> None:
        """Write the lease; another holder may sweep up, leave or swap the root at any moment."""
        for _ in range(_WRITE_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):
                self._store.write_durably(self._path, content)
                return
            time.sleep(0.01)
        self._store.write_durably(self._path, content)

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
    """Everyone else who holds a lease on a dataset; leases of the dead are taken away."""
    return holders_in(store, store.path(LEASES), besides, sweep=True)


def holders_in(
    store: Store, folder: str, besides: str = "", *, sweep: bool = False
) -> list[Holder]:
    """The living holders of the leases in a folder."""
    holders = []
    for listed in store.find(folder):
        if not listed.path.endswith(".json") or listed.path.endswith(f"/{besides}.json"):
            continue
        holder = _read_holder(store, listed.path)
        if holder is None:
            continue
        if holder.is_alive(time.time()):
            holders.append(holder)
        elif sweep:
            logger.info("taking over from a dead run: %s", holder)
            store.delete(listed.path)
    return sorted(holders, key=lambda holder: holder.run_id)


def _now() -> float:
    """Seconds that also pass while the machine sleeps, where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


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
    """This machine since its last start and, in containers, this process namespace."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        namespace, boot = 0, ""
    return f"{socket.gethostname()}/{boot}/{namespace}"


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
