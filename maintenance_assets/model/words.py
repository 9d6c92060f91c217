"""Sizes and times as they are said everywhere: in the shell, in reasons and in logs."""


def time_words(seconds: float) -> str:
    """A span of time, as precise as anyone needs."""
    if seconds < 99.5:
        return f"{max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 99.5 else f"{minutes / 60:.0f} h"


def size_words(size_bytes: int) -> str:
    """A size, as precise as anyone needs."""
    size = float(size_bytes)
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} {units[-1]}"
