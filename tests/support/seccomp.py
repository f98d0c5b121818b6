"""A sandbox that refuses openat2 and io_setup: `python -m tests.support.seccomp errno|kill true|false FOLDER`.

It installs a seccomp filter in this process, writes files into the folder by an ObjectStore with `linux_syscalls` on or
off, and prints how many there are. With `kill` the kernel ends the process at the first of these calls.
"""

import asyncio
import ctypes
import errno
import platform
import struct
import sys
from pathlib import Path

from tests.support.local_store import local_store

IO_SETUP = {"x86_64": 206, "aarch64": 0}
OPENAT2 = 437
FILES = 40

# From linux/prctl.h, linux/seccomp.h and linux/bpf_common.h.
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(*, kill: bool) -> None:
    """From now on, for this process and for ever."""
    refused = (OPENAT2, IO_SETUP[platform.machine()])
    verdict = _KILL_PROCESS if kill else _ERRNO | errno.EPERM
    instructions = [(_LOAD_WORD, 0, 0, 0)]  # the number of the call
    instructions += [
        (_JUMP_IF_EQUAL, len(refused) - index, 0, number) for index, number in enumerate(refused)
    ]  # to the last instruction
    instructions += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, verdict)]
    code = b"".join(struct.pack("HBBI", *each) for each in instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(instructions), code)
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))):
        if libc.prctl(*arguments, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp is not to be had here")


async def write(folder: str, *, linux_syscalls: bool) -> None:
    store = local_store(folder, linux_syscalls=linux_syscalls)
    small = (store.write_new(f"file://{folder}/t{number % 5}/{number}.json", b"{}") for number in range(FILES))
    await asyncio.gather(*small)
    await store.write_metadata(f"file://{folder}/t0/large.json", b"x" * 500_000, len)
    await store.close()


if __name__ == "__main__":
    how, switch, where = sys.argv[1:]
    install(kill=how == "kill")
    asyncio.run(write(where, linux_syscalls=switch == "true"))
    print(len(list(Path(where).rglob("*.json"))))
