"""How files are written and brought to disk on Linux with less CPU; behind one switch, the setting `linux_syscalls`.

    syscalls.py      openat2, write, close and posix_fadvise by ctypes, without giving up the interpreter
    aio_fsync.py     many fsyncs in one call, by Linux AIO (io_submit)
    shared_fsync.py  commits of one moment share one fsync call

With the switch off, on another system, or where a sandbox refuses the calls, `local.py` uses Python's own functions and
os.fsync in threads. Both ways keep the same promises, and the same tests ask for them.
"""
