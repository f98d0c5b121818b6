"""Ports for programs that have to be told one, and what the system knows of their connections."""

import random
import socket
from pathlib import Path

# The system takes ports for clients, and for servers that do not care, from above these. One that was free a moment
# ago stays free as long as the program needs to start, however many tests run meanwhile.
LOWEST, HIGHEST = 10_000, 32_000
ESTABLISHED, NOT_ACCEPTED = "01", "0"  # in the system's own list
_chance = random.SystemRandom()


def free_port() -> int:
    for _ in range(100):
        port = _chance.randrange(LOWEST, HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST}")


def connections_read(port: int) -> int:
    """How many connections a server here has accepted and read all of what was sent to it on them."""
    wanted = f"0100007F:{port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        local == wanted and state == ESTABLISHED and queues.endswith(":00000000") and inode != NOT_ACCEPTED
        for _, local, _, state, queues, _, _, _, _, inode, *_ in lines
    )
