"""Work on several items at once, with what they yield in the order of the items."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Full, Queue
from threading import Event
from typing import Any, TypeVar

I = TypeVar("I")  # noqa: E741
T = TypeVar("T")
_LOOK_SECONDS = 0.1
_END = object()


def in_order(work: Callable[[I], Iterator[T]], items: Sequence[I], workers: int) -> Iterator[T]:
    """What the items yield, one item after the other; some are worked on ahead, within limits."""
    if workers == 1 or len(items) < 2:
        for item in items:
            yield from work(item)
        return
    stop = Event()
    with ThreadPoolExecutor(workers, thread_name_prefix="read") as pool:
        waiting = iter(items)
        ahead: deque[_Stream[T]] = deque()
        try:
            while True:
                for item in waiting:
                    stream: _Stream[T] = _Stream(stop)
                    pool.submit(stream.run, work, item)
                    ahead.append(stream)
                    if len(ahead) > workers:
                        break
                if not ahead:
                    return
                yield from ahead.popleft()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


class _Stream(Iterator[T]):
    """What one item yields, at most one ahead of who takes it."""

    def __init__(self, stop: Event) -> None:
        self._queue: Queue[Any] = Queue(1)
        self._stop = stop

    def run(self, work: Callable[[Any], Iterator[T]], item: Any) -> None:
        """Fill the stream; an error goes to who takes from it."""
        try:
            for found in work(item):
                if not self._put((found, None)):
                    return
            self._put((_END, None))
        except BaseException as error:
            self._put((_END, error))

    def _put(self, entry: Any) -> bool:
        """Wait for room; False when nobody is going to take anything any more."""
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=_LOOK_SECONDS)
                return True
            except Full:
                continue
        return False

    def __next__(self) -> T:
        while True:
            try:
                found, error = self._queue.get(timeout=_LOOK_SECONDS)
                break
            except Empty:
                if self._stop.is_set():
                    raise StopIteration from None
        if error is not None:
            raise error
        if found is _END:
            raise StopIteration
        taken: T = found
        return taken
