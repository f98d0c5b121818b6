"""Fsyncs many open files with one wait, by Linux AIO.

`io_submit` takes several fsyncs at once. The kernel runs them concurrently, so that they share commits of the
filesystem's journal: thirty files take about as long as one. An event loop submits them and is notified by an eventfd
when they are done; a thread waits once, not thirty times. Where AIO is unavailable, os.fsync runs in threads.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import platform
import sys
import threading
from array import array
from collections.abc import Sequence

from nunatak.objectstore.plain_fsync import InThread, ThreadFsync, sync_each

_FSYNC = 2  # IOCB_CMD_FSYNC
_SIGNALS_EVENTFD = 1  # IOCB_FLAG_RESFD
_MAX_REQUESTS = 128  # submitted together; more take several rounds
_LONG = ctypes.c_long
# The system call numbers of io_setup, io_destroy, io_submit and io_getevents.
_SYSCALL_NUMBERS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}.get(platform.machine())
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.001, 0.05  # polls what is unfinished after the notification


class _Request(ctypes.Structure):
    """`struct iocb`; fields that an fsync does not use stay zero."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key_and_flags", ctypes.c_uint64),
        ("operation", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("unused", ctypes.c_uint64 * 4),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


_WORDS = ctypes.sizeof(_Request) // 4
_EVENT = 4  # int64 fields of a `struct io_event`: data, obj, res, res2
_RESULT = 2


def sync_all(files: Sequence[int]) -> None:
    """Fsyncs each of these descriptors, blocking; raises OSError if one of them fails."""
    queue = _context_of_thread()
    if queue is None:
        sync_each(files)
        return
    for start in range(0, len(files), _MAX_REQUESTS):
        queue.sync_all(files[start : start + _MAX_REQUESTS])


class LoopFsync:
    """Fsyncs files without blocking the event loop. A second concurrent call uses a thread.

    `in_thread` calls a function in a thread, for what AIO cannot do.
    """

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._plain = ThreadFsync(in_thread)
        self._context: _LoopContext | None = None
        self._is_unavailable = False  # this system has no AIO

    async def sync_all(self, files: Sequence[int]) -> None:
        context = self._context_of(asyncio.get_running_loop())
        if context is None:
            await self._plain.sync_all(files)
            return
        for start in range(0, len(files), _MAX_REQUESTS):
            left = await self._sync(context, files[start : start + _MAX_REQUESTS])
            if left:
                await self._in_thread(sync_all, left)

    async def _sync(self, context: "_LoopContext", files: Sequence[int]) -> Sequence[int]:
        """Fsyncs files by AIO; returns those that could not be submitted."""
        if context.is_waiting:
            return files
        try:
            return await context.sync(files)
        except BaseException:
            if context.is_waiting:  # cancelled or failed: late completions must not be taken for those of the next call
                self.close()
            raise

    def _context_of(self, loop: asyncio.AbstractEventLoop) -> "_LoopContext | None":
        if self._context is not None and self._context.loop is not loop:
            self.close()
        if self._context is None and not self._is_unavailable:
            try:
                self._context = _LoopContext(loop)
            except (OSError, AttributeError, NotImplementedError):
                self._is_unavailable = True
        return self._context

    def close(self) -> None:
        if self._context is not None:
            self._context.close()
            self._context = None


class _LoopContext:
    """An AIO context that signals an eventfd when the last submitted fsync is done, mostly after the others."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue = _AioContext(ctypes.PyDLL(None, use_errno=True))  # PyDLL keeps the GIL: no call blocks
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: asyncio.Future[None] | None = None
        self._left = 0
        self._pause = FIRST_POLL_SECONDS
        self._errors: list[int] = []
        loop.add_reader(self._file, self._on_eventfd)

    @property
    def is_waiting(self) -> bool:
        return self._left > 0

    async def sync(self, files: Sequence[int]) -> Sequence[int]:
        """Fsyncs files; returns those that the kernel did not accept. Raises OSError if one failed."""
        self._left = taken = self._queue.submit(files, self._file)
        if taken:
            self._done, self._errors, self._pause = self.loop.create_future(), [], FIRST_POLL_SECONDS
            if taken < len(files):
                self._poll_later()  # the request with the eventfd was not accepted, so poll
            await self._done
            if self._errors:
                raise OSError(self._errors[0], os.strerror(self._errors[0]))
        return files[taken:]

    def _on_eventfd(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._file)
        self._poll()

    def _poll(self) -> None:
        if self._done is None or self._done.done():
            return
        try:
            done, errors = self._queue.collect(self._left, at_least=0)
        except OSError as error:
            self._done.set_exception(error)
            return
        self._left -= done
        self._errors += errors
        if self._left:
            self._poll_later()
        else:
            self._done.set_result(None)

    def _poll_later(self) -> None:
        self.loop.call_later(self._pause, self._poll)
        self._pause = min(2 * self._pause, MAX_POLL_SECONDS)

    def close(self) -> None:
        self._done = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.remove_reader(self._file)
        os.close(self._file)


class _AioContext:
    """An AIO context of the kernel, for one thread or event loop; raises OSError if unavailable."""

    def __init__(self, library: ctypes.CDLL) -> None:
        if not sys.platform.startswith("linux") or _SYSCALL_NUMBERS is None:
            raise OSError(errno.ENOSYS, "Linux AIO is not available")
        self._setup, self._destroy, self._submit, self._get = (_LONG(number) for number in _SYSCALL_NUMBERS)
        self._syscall = library.syscall
        self._syscall.restype = _LONG
        self._context = ctypes.c_ulong(0)
        self._requests = (_Request * _MAX_REQUESTS)()
        # A strided view of the `file` field of all requests: one slice assignment replaces a Python loop per commit.
        self._files = memoryview(self._requests).cast("B").cast("I")[_Request.file.offset // 4 :: _WORDS]
        self._addresses = (ctypes.c_void_p * _MAX_REQUESTS)(*(ctypes.addressof(each) for each in self._requests))
        self._events = (ctypes.c_int64 * (_EVENT * _MAX_REQUESTS))()
        for request in self._requests:
            request.operation = _FSYNC
        if self._syscall(self._setup, ctypes.c_uint(_MAX_REQUESTS), ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), "Linux AIO is not available")

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._syscall(self._destroy, self._context)

    def submit(self, files: Sequence[int], eventfd: int | None = None) -> int:
        """Submits fsyncs; returns how many the kernel accepted. The last one signals the `eventfd`."""
        last = self._requests[len(files) - 1]
        self._files[: len(files)] = memoryview(array("I", files))
        if eventfd is not None:
            last.eventfd, last.flags = eventfd, _SIGNALS_EVENTFD
        taken: int = self._syscall(self._submit, self._context, _LONG(len(files)), self._addresses)
        last.flags = 0
        return max(0, taken)

    def collect(self, most: int, *, at_least: int) -> tuple[int, list[int]]:
        """Waits for `at_least` completions; returns how many were collected, up to `most`, and their error numbers."""
        while True:
            found: int = self._syscall(self._get, self._context, _LONG(at_least), _LONG(most), self._events, None)
            if found >= 0:
                results = self._events[_RESULT : _EVENT * found : _EVENT]
                return found, [-result for result in results if result < 0]
            if ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "io_getevents failed: it is unknown whether the files are on disk")

    def sync_all(self, files: Sequence[int]) -> None:
        left = taken = self.submit(files)
        errors: list[int] = []
        while left:
            try:
                done, found = self.collect(left, at_least=left)
            except OSError:
                _thread_local.queue = None  # its late completions must not be taken for those of the next call
                raise
            left -= done
            errors += found
        for file in files[taken:]:  # not accepted by AIO
            os.fsync(file)
        if errors:
            raise OSError(errors[0], os.strerror(errors[0]))


_thread_local = threading.local()


def _context_of_thread() -> _AioContext | None:
    """Returns the AIO context of this thread, created on first use and destroyed with the thread; None without AIO."""
    try:
        queue: _AioContext | None = _thread_local.queue
    except AttributeError:
        try:
            queue = _AioContext(ctypes.CDLL(None, use_errno=True))
        except OSError:
            queue = None  # an unsupported system, a sandbox, or the limit fs.aio-max-nr
        _thread_local.queue = queue
    return queue
