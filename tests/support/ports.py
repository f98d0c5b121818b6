"""Ports for programs that have to be told one."""

import random
import socket

# The system takes ports for clients, and for servers that do not care, from above these. One that was free a moment
# ago stays free as long as the program needs to start, however many tests run meanwhile.
LOWEST, HIGHEST = 10_000, 32_000
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
