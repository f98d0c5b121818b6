"""A listener that nobody should ever connect to."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


class Sentinel:
    """Accepts nothing by itself: connections wait in the queue of the kernel until they are counted."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._counted = 0
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def connections(self) -> int:
        """How many there were until now."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return self._counted
            connection.close()
            self._counted += 1


@contextmanager
def listening_sentinel() -> Iterator[Sentinel]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.setblocking(False)
        yield Sentinel(listener)
