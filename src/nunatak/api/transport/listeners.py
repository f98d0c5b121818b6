"""The sockets that the server listens on."""

import socket
import sys
from collections.abc import Iterable

from nunatak.settings import Settings, SettingsError

BACKLOG = 2048  # connections waiting to be accepted


def open_listeners(settings: Settings) -> list[socket.socket]:
    """Opens one socket per worker, all on one address, so that the kernel distributes connections evenly.

    The workers' parent keeps them open: a connection that waits to be accepted survives the death of a worker.
    """
    if settings.workers == 1 or sys.platform != "linux":  # elsewhere the last to listen would get every connection
        return [_listener(settings, settings.port, share=False)] * settings.workers
    if settings.port != 0:
        # With SO_REUSEPORT any process of this user can share the port: detect another server first.
        _listener(settings, settings.port, share=False).close()
    first = _listener(settings, settings.port, share=True)
    port = first.getsockname()[1]
    return [first, *(_listener(settings, port, share=True) for _ in range(settings.workers - 1))]


def close_listeners(listeners: Iterable[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def _listener(settings: Settings, port: int, *, share: bool) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((settings.host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(f"cannot listen on {settings.host}:{port}: {error.strerror}") from error
    return listener
