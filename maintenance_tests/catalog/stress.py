"""Many processes on one catalog, some of them killed: run by the tests, and for longer by hand.

python -m maintenance_tests.catalog.stress appends sqlite:///tmp/c.db /tmp/lake 8 25
python -m maintenance_tests.catalog.stress kills sqlite:///tmp/c.db /tmp/lake 4 100
"""

import multiprocessing
import os
import random
import signal
import time
from datetime import timedelta
from typing import Any

from maintenance_assets import Lakehouse, LeaseLostError, MaintenanceError
from maintenance_assets.api.lakehouse import LakeDataset

NAME = "stress"
NOW = timedelta(0)
_START_BASE = 1_000_000


def make(uri: str, root: str) -> None:
    """An empty dataset."""
    with Lakehouse(uri, root) as house:
        house.create_dataset(NAME, {"id": "int64", "writer": "int64"}, partition_by=["writer"])


def workers() -> Any:
    """Processes that start quickly, from a server that has loaded the libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["maintenance_tests.catalog.stress"])
    return context


def open_dataset(uri: str, root: str, lease: timedelta = timedelta(minutes=10)) -> LakeDataset:
    """The dataset, from a process of its own."""
    return Lakehouse(uri, root, lease=lease).dataset(NAME)


# -- appends with compaction ------------------------------------------------------------------


def append_many(uri: str, root: str, writer: int, count: int) -> None:
    """Commit so many rows, one by one."""
    dataset = open_dataset(uri, root)
    for number in range(count):
        dataset.append({"id": [writer * _START_BASE + number], "writer": [writer % 2]})


def compact_until(uri: str, root: str, stop: Any) -> None:
    """Compact over and over; what others replaced meanwhile is left for the next time."""
    dataset = open_dataset(uri, root)
    while not stop.is_set():
        dataset.compact()


def appends(uri: str, root: str, processes: int, each: int) -> tuple[int, int]:
    """Rows and versions after so many processes have appended while another one compacts."""
    make(uri, root)
    context = workers()
    stop = context.Event()
    compactor = context.Process(target=compact_until, args=(uri, root, stop))
    writers = [
        context.Process(target=append_many, args=(uri, root, n, each)) for n in range(processes)
    ]
    for process in [compactor, *writers]:
        process.start()
    for process in writers:
        process.join()
    stop.set()
    compactor.join()
    failed = [process.exitcode for process in [compactor, *writers] if process.exitcode]
    if failed:
        raise AssertionError(f"processes ended with {failed}")
    with Lakehouse(uri, root) as house:
        dataset = house.dataset(NAME)
        found = sorted(dataset.read(["id"]).column("id").to_pylist())
        wanted = sorted(n * _START_BASE + i for n in range(processes) for i in range(each))
        if found != wanted:
            raise AssertionError(f"{len(found)} rows instead of {len(wanted)}")
        problems = house.fsck().problems
        if problems:
            raise AssertionError(f"fsck: {problems}")
        return len(found), dataset.version


# -- kills with vacuum ------------------------------------------------------------------------

LEASE = timedelta(seconds=2)


def work_until_killed(uri: str, root: str, seed: int, acknowledged: Any) -> None:
    """Append, compact, update and vacuum at random; every acknowledged append is told."""
    dice = random.Random(seed)
    house = Lakehouse(uri, root, lease=LEASE)
    dataset = house.dataset(NAME)
    number = 0
    while True:
        step = dice.random()
        try:
            if step < 0.6:
                row = seed * _START_BASE + number
                number += 1
                dataset.append({"id": [row], "writer": [seed % 3]}, txn_id=f"row-{row}")
                acknowledged.send(row)
            elif step < 0.9:
                dataset.compact()
            elif step < 0.95:
                dataset.update("id < 0", {"writer": 0})
            else:
                _vacuum(house)
        except LeaseLostError:
            continue  # a machine that is busy enough: nothing was committed
        except MaintenanceError as error:
            if "vacuumed" not in str(error):
                raise


def kills(uri: str, root: str, processes: int, rounds: int, seed: int = 7) -> dict[str, int]:
    """Kill workers at random moments while vacuum runs; then nothing may be missing or stray."""
    make(uri, root)
    dice = random.Random(seed)
    context = workers()
    told: set[int] = set()
    running: list[tuple[Any, Any]] = []
    house = Lakehouse(uri, root, lease=LEASE)
    started = vacuumed = 0
    while started < rounds or running:
        while started < rounds and len(running) < processes:
            receiver, sender = context.Pipe(duplex=False)
            args = (uri, root, started + 1, sender)
            process = context.Process(target=work_until_killed, args=args)
            process.start()
            sender.close()
            running.append((process, receiver))
            started += 1
        vacuumed += _vacuum(house)
        time.sleep(dice.uniform(0, 0.6))
        process, receiver = running.pop(dice.randrange(len(running)))
        if process.exitcode is not None:
            raise AssertionError(f"a worker ended by itself with {process.exitcode}")
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        told |= _received(receiver)
    time.sleep(LEASE.total_seconds() + 0.1)
    house.expire_snapshots(NOW)
    vacuumed += _vacuum(house)
    return {**_checked(house, told), "kills": rounds, "vacuumed": vacuumed}


def _vacuum(house: Lakehouse) -> int:
    house.expire_snapshots(NOW)
    return sum(len(r.files) for r in house.vacuum(NOW, dry_run=False, force=True))


def _received(receiver: Any) -> set[int]:
    found = set()
    # Not until its end: a process that was forked meanwhile may hold the other end open.
    while receiver.poll():
        try:
            found.add(receiver.recv())
        except (EOFError, OSError):
            break
    return found


def _checked(house: Lakehouse, told: set[int]) -> dict[str, int]:
    dataset = house.dataset(NAME)
    found = dataset.read(["id"]).column("id").to_pylist()
    (report,) = house.fsck().reports
    if len(found) != len(set(found)):
        raise AssertionError("rows are doubled")
    if told - set(found):
        raise AssertionError(f"{len(told - set(found))} acknowledged rows are missing")
    if report.problems or report.waiting:
        raise AssertionError(f"fsck: {report}")
    return {"rows": len(found), "acknowledged": len(told), "versions": dataset.version}
