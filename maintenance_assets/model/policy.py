"""What the user wants files to look like."""

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Literal, cast, get_args

MIB = 1024 * 1024
DEFAULT_TARGET_BYTES = 128 * MIB
DEFAULT_MEMORY_BUDGET_MB = 512
Mode = Literal["auto", "stitch", "encode"]
"""Copy what is good and encode the rest; copy or refuse; encode everything."""
MODES: tuple[str, ...] = get_args(Mode)
CODECS = ("brotli", "gzip", "lz4", "none", "snappy", "zstd")


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """Targets of a compaction. `target_rows` is a hard bound, `target_bytes` an aim."""

    target_bytes: int | None = DEFAULT_TARGET_BYTES
    target_rows: int | None = None
    compression: str | None = None
    mode: Mode = "auto"

    def __post_init__(self) -> None:
        if self.target_bytes is None and self.target_rows is None:
            raise ValueError("a policy needs target_bytes or target_rows")

    @classmethod
    def from_targets(
        cls,
        target_mb_per_file: object = None,
        target_rows_per_file: object = None,
        compression: object = None,
        mode: object = "auto",
    ) -> "CompactionPolicy":
        """Check the user's targets and turn them into bytes and rows."""
        megabytes = _positive("target_mb_per_file", target_mb_per_file)
        rows = _positive("target_rows_per_file", target_rows_per_file)
        if rows is not None and rows != int(rows):
            raise ValueError(f"target_rows_per_file must be a whole number, got {rows}")
        target_bytes = bytes_of_mb("target_mb_per_file", megabytes)
        if megabytes is None and rows is None:
            target_bytes = DEFAULT_TARGET_BYTES
        row_bound = None if rows is None else int(rows)
        return cls(target_bytes, row_bound, codec_name(compression), mode_name(mode))


def bytes_of_mb(name: str, value: object) -> int | None:
    """Check a size given in MiB; None stays None."""
    megabytes = _positive(name, value)
    # Whole numbers first: the largest floats would become infinite.
    return None if megabytes is None else max(1, int(Fraction(megabytes) * MIB))


def memory_budget_bytes(memory_budget_mb: object) -> int:
    """Check a memory budget given in MiB of decoded data."""
    megabytes = _positive("memory_budget_mb", memory_budget_mb)
    return int((DEFAULT_MEMORY_BUDGET_MB if megabytes is None else megabytes) * MIB)


def worker_count(max_workers: object, default: int) -> int:
    """Check a number of workers."""
    workers = _positive("max_workers", max_workers)
    if workers is not None and workers != int(workers):
        raise ValueError(f"max_workers must be a whole number, got {workers}")
    return default if workers is None else int(workers)


def mode_name(mode: object) -> Mode:
    """Check how files are to be written."""
    if mode not in MODES:
        raise ValueError(f"Unknown mode {mode!r}. Known modes: {', '.join(MODES)}")
    return cast(Mode, mode)


def codec_name(compression: object) -> str | None:
    """Check a codec name; `None` keeps the codec of the sources."""
    if compression is None:
        return None
    name = compression.lower() if isinstance(compression, str) else compression
    if name == "uncompressed":
        return "none"
    if name not in CODECS:
        known = ", ".join(CODECS)
        raise ValueError(f"Unknown compression {compression!r}. Known codecs: {known}")
    return str(name)


def _positive(name: str, value: object) -> float | int | None:
    """Check that a number is finite and > 0, before any I/O; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be > 0 and a number, got {value!r}")
    if isinstance(value, Integral):
        number: float | int = int(value)
    else:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"{name} must be > 0 and finite, got {value!r}")
    if number <= 0:
        raise ValueError(f"{name} must be > 0, got {value!r}")
    return number
