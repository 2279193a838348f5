"""The clocks. Every other module takes the time from here, or is given a clock; ruff refuses the ones of `time`.

`time.perf_counter` is none of them: it measures how long a piece of code takes.
"""

import time


def wall_ms() -> int:
    """Returns milliseconds since 1970, what records are stamped with. It may jump, also back."""
    return time.time_ns() // 1_000_000


def steady_s() -> float:
    """Returns seconds that neither jump nor go back; they stand still while the machine sleeps."""
    return time.monotonic()


def steady_ms() -> int:
    """As `steady_s`, in whole milliseconds."""
    return time.monotonic_ns() // 1_000_000


def since_boot_ms() -> int:
    """As `steady_ms`, and goes on while the machine sleeps: what leases are measured with."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
