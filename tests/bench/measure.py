"""What a server costs: CPU and memory of its processes, read from /proc."""

from collections.abc import Callable

import psutil


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and its descendants, including children that have ended."""
    return _sum_of_family(pid, lambda process: sum(process.cpu_times()[:4]))


def pss_bytes(pid: int) -> int:
    """Proportional set size: what is resident, with pages shared by several processes counted once."""
    return int(_sum_of_family(pid, lambda process: process.memory_full_info().pss))


def _sum_of_family(pid: int, cost: Callable[[psutil.Process], float]) -> float:
    parent = psutil.Process(pid)
    total = 0.0
    for child in parent.children(recursive=True):
        try:
            total += cost(child)
        except psutil.NoSuchProcess:
            continue  # It has ended since; its parent has its time, which is why the parent is read last.
    return total + cost(parent)
