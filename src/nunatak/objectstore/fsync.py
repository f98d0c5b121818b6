"""Bringing open files to disk, many of them with one wait; what they hold and who waits is not known here.

Linux can be handed several fsyncs at once (`io_submit`). It works on them side by side, so that they share the commits
of the filesystem's journal: thirty files take about as long as one, and a thread of ours waits once, not thirty times.
Where it cannot, or will not, files are synced one after the other.
"""

import ctypes
import errno
import os
import platform
import sys
import threading
from collections.abc import Sequence

_FSYNC = 2  # IOCB_CMD_FSYNC
_AT_ONCE = 128  # handed over together; more go in several rounds
_LONG = ctypes.c_long
# The numbers of io_setup, io_destroy, io_submit and io_getevents.
_NUMBERS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}.get(platform.machine())


class _Request(ctypes.Structure):
    """`struct iocb`; what an fsync does not need stays zero."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key_and_flags", ctypes.c_uint64),
        ("operation", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("unused", ctypes.c_uint64 * 5),
    )


class _Event(ctypes.Structure):
    """`struct io_event`"""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("more", ctypes.c_int64),
    )


def sync_all(files: Sequence[int]) -> None:
    """As `os.fsync` for each of these descriptors; raises OSError if one of them could not be brought to disk."""
    queue = _queue_of_thread()
    if queue is None:
        for file in files:
            os.fsync(file)
        return
    for start in range(0, len(files), _AT_ONCE):
        queue.sync_all(files[start : start + _AT_ONCE])


class _Queue:
    """The kernel's queue of requests, for one thread; raises OSError if there is none to be had."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux") or _NUMBERS is None:
            raise OSError(errno.ENOSYS, "no asynchronous fsync here")
        self._setup, self._destroy, self._submit, self._get = (_LONG(number) for number in _NUMBERS)
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = _LONG
        self._context = ctypes.c_ulong(0)
        self._requests = (_Request * _AT_ONCE)()
        self._addresses = (ctypes.c_void_p * _AT_ONCE)(*(ctypes.addressof(each) for each in self._requests))
        self._events = (_Event * _AT_ONCE)()
        for request in self._requests:
            request.operation = _FSYNC
        if self._syscall(self._setup, ctypes.c_uint(_AT_ONCE), ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), "no asynchronous fsync here")

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._syscall(self._destroy, self._context)

    def sync_all(self, files: Sequence[int]) -> None:
        for request, file in zip(self._requests, files, strict=False):
            request.file = file
        handed_over = max(0, self._syscall(self._submit, self._context, _LONG(len(files)), self._addresses))
        errors = self._await(handed_over)
        for file in files[handed_over:]:  # what the kernel does not take this way
            os.fsync(file)
        if errors:
            raise OSError(errors[0], os.strerror(errors[0]))

    def _await(self, count: int) -> list[int]:
        """Wait for all that was handed over; the errors among the outcomes."""
        errors: list[int] = []
        while count:
            found = self._syscall(self._get, self._context, _LONG(count), _LONG(count), self._events, None)
            if found < 0 and ctypes.get_errno() != errno.EINTR:
                _of_thread.queue = None  # what comes out of this one later is not for those who ask next
                raise OSError(ctypes.get_errno(), "cannot tell whether files are on disk")
            errors += [-event.result for event in self._events[: max(0, found)] if event.result < 0]
            count -= max(0, found)
        return errors


_of_thread = threading.local()


def _queue_of_thread() -> _Queue | None:
    """Each thread has its own, made when first needed and given back when the thread ends."""
    try:
        queue: _Queue | None = _of_thread.queue
    except AttributeError:
        try:
            queue = _Queue()
        except OSError:
            queue = None  # an old or foreign kernel, a sandbox that forbids it, or too many in use
        _of_thread.queue = queue
    return queue
