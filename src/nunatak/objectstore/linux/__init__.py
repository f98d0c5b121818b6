"""Writes and fsyncs files on Linux with less CPU; enabled by one setting, `linux_syscalls`.

    syscalls.py      openat2, write, close and posix_fadvise by ctypes, without releasing the GIL
    aio_fsync.py     many fsyncs in one call, by Linux AIO (io_submit)
    shared_fsync.py  concurrent commits share one fsync call

With the setting off, on another system, or where a sandbox refuses the calls, `local.py` uses Python's own functions
and os.fsync in threads. Both ways give the same guarantees and pass the same tests.
"""
