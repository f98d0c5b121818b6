"""System calls on files that keep the GIL: they take microseconds, less than releasing and reacquiring it.

Python's own `os.open`, `os.write` and `os.close` release the GIL around each call. With several threads that write
files beside a busy event loop that is most of a commit's CPU time. Calls that wait for the disk are in aio_fsync.py.

Importing this module makes no system call: a sandbox may kill a process for one.
"""

import ctypes
import errno
import functools
import os
import sys

_SYS_OPENAT2 = 437
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_OPEN_HOW_BYTES = ctypes.sizeof(_OpenHow)


class _Buffer(ctypes.Structure):
    """`Py_buffer`: address and size of an object's bytes; `rest` are the fields not used here."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
        ("rest", ctypes.c_void_p * 8),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None
_libc = ctypes.PyDLL(None, use_errno=True)
_openat2 = _libc.syscall
_openat2.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_openat2.restype = ctypes.c_long
_open = _libc.open
_open.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_int)
_write = _libc.write
_write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_write.restype = ctypes.c_ssize_t
_close = _libc.close
_close.argtypes = (ctypes.c_int,)
_advise = getattr(_libc, "posix_fadvise", None)  # macOS has none
if _advise is not None:
    _advise.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int)


def open_path(path: str, flags: int) -> int:
    """Opens an existing file or folder, like `os.open`."""
    return _raise_on_error(_open(os.fsencode(path), flags | os.O_CLOEXEC, 0), path)


class OpenAt2:
    """The arguments of an openat2 call that refuses links; built once, as building them costs as much as the call."""

    __slots__ = ("_how", "_pointer")

    def __init__(self, flags: int, *, mode: int = 0, beneath: bool = False) -> None:
        """With `beneath`, a path that leaves the starting folder is refused, too."""
        resolve = _RESOLVE_NO_SYMLINKS | (_RESOLVE_BENEATH if beneath else 0)
        self._how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)  # the kernel only reads it
        self._pointer = ctypes.byref(self._how)

    def open(self, path: str, folder: int = _AT_FDCWD) -> int:
        """Opens a path relative to `folder`, or an absolute one; raises OSError."""
        return _raise_on_error(_openat2(_SYS_OPENAT2, folder, os.fsencode(path), self._pointer, _OPEN_HOW_BYTES), path)


def write_all(file: int, data: bytes | memoryview) -> None:
    # Py_buffer gives the address of read-only bytes without a copy; ctypes.from_buffer takes writable objects only.
    buffer = _Buffer()
    _get_buffer(data, buffer, 0)
    try:
        start, left = buffer.start, buffer.size
        while left:
            written = _raise_on_error(_write(file, start, left), "")
            start += written
            left -= written
    finally:
        _release_buffer(buffer)


def drop_pages(file: int) -> None:
    """Drops the file from the page cache, by posix_fadvise with POSIX_FADV_DONTNEED."""
    if _advise is not None:
        _advise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def close(file: int) -> None:
    _close(file)


def _raise_on_error(result: int, path: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


@functools.cache
def is_available() -> bool:
    """Whether openat2 is available: Linux 5.6 or newer, unless a sandbox refuses it."""
    if not sys.platform.startswith("linux"):
        return False
    root = open_path("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        close(OpenAt2(os.O_RDONLY | os.O_DIRECTORY, beneath=True).open(".", root))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            return False
        raise
    finally:
        close(root)
    return True
