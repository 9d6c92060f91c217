"""Names that can never equal one that exists: time-ordered and random (UUID version 7)."""

import secrets
import threading
import time
import uuid
from dataclasses import dataclass

_lock = threading.Lock()
_last = 0


def uuid7() -> str:
    """A UUIDv7 (RFC 9562) that sorts after every earlier one of this process."""
    global _last
    with _lock:
        # 48 bits of milliseconds and 12 of a fraction: many are made within one millisecond.
        _last = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
        ticks = _last
    milliseconds, fraction = divmod(ticks, 4096)
    value = milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


def output_name(prefix: str) -> str:
    """The final name of an output file."""
    return f"{prefix}-{uuid7()}.parquet"


@dataclass(frozen=True, slots=True)
class Staging:
    """Gives new files a place in the directory of a run; executors get it as it is."""

    folder: str
    prefix: str

    def __call__(self, directory: str) -> str:
        """The path of a new file, whatever directory it is for."""
        return f"{self.folder}/{output_name(self.prefix)}.staged"
