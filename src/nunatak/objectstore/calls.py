"""System calls on files, made without giving up the interpreter: they take microseconds, handing it over takes longer.

Python's own `os.open`, `os.write` and `os.close` release the interpreter around each call. With several threads
writing files beside a busy event loop that is most of a commit's CPU time. What waits for the disk is in fsync.py.
"""

import ctypes
import errno
import os
import sys

_SYS_OPENAT2 = 437
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.PyDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_open = _libc.open
_open.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_int)
_write = _libc.write
_write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_write.restype = ctypes.c_ssize_t
_close = _libc.close
_close.argtypes = (ctypes.c_int,)
_advise = getattr(_libc, "posix_fadvise", None)  # macOS has none
if _advise is not None:
    _advise.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int)


def open_path(path: str, flags: int) -> int:
    """`os.open` for something that exists."""
    return _checked(_open(os.fsencode(path), flags | os.O_CLOEXEC, 0), path)


def open_beneath(folder: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` below `folder` in one call that refuses every link on the way and never leaves the folder."""
    return _open_resolved(folder, path, _How(flags | os.O_CLOEXEC, mode, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH))


def open_without_links(path: str, flags: int) -> int:
    """Open an absolute path in one call that refuses every link on the way, from the root on."""
    return _open_resolved(_AT_FDCWD, path, _How(flags | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS))


def _open_resolved(folder: int, path: str, how: _How) -> int:
    name = ctypes.c_char_p(os.fsencode(path))
    size = ctypes.c_size_t(ctypes.sizeof(how))
    opened = _syscall(ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(folder), name, ctypes.byref(how), size)
    return _checked(opened, path)


def write_all(file: int, data: bytes) -> None:
    written = _checked(_write(file, data, len(data)), "")
    while written < len(data):
        data = data[written:]
        written = _checked(_write(file, data, len(data)), "")


def drop_pages(file: int) -> None:
    """Tell the system that nobody will read a file soon that is on disk: the next one is written into its pages.

    Fresh pages cost several times what copying into them does, above all where the machine is a virtual one.
    """
    if _advise is not None:
        _advise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def close(file: int) -> None:
    _close(file)


def _checked(result: int, path: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


def _is_available() -> bool:
    """Linux 5.6 and newer have the call; a sandbox may forbid it."""
    if not sys.platform.startswith("linux"):
        return False
    root = open_path("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        close(open_beneath(root, ".", os.O_RDONLY | os.O_DIRECTORY))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            return False
        raise
    finally:
        close(root)
    return True


AVAILABLE = _is_available()
