"""Names that can never equal one that exists: time-ordered and random (UUID version 7)."""

import secrets
import time
import uuid


def uuid7() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, the rest random."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def output_name(prefix: str) -> str:
    """The final name of an output file."""
    return f"{prefix}-{uuid7()}.parquet"
