"""The configured uvicorn server: accepts connections for our protocol, and drains requests when it is stopped."""

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator

import uvicorn

from nunatak.api.transport.protocol import CatalogProtocol
from nunatak.api.transport.uvicorn_internals import set_tls

KEEP_ALIVE_SECONDS = 75  # as nginx: longer than clients and proxies keep an idle connection


class HttpServer(uvicorn.Server):
    """Calls `announce` once it listens, and stops on SIGTERM and SIGINT.

    uvicorn raises the signal again afterwards; this server does not, since that would end the process before the
    database is closed.
    """

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for stop in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stop, self.handle_exit, stop, None)
        yield


def make_server(
    protocol: type[CatalogProtocol],
    tls: ssl.SSLContext | None,
    announce: Callable[[], None],
    *,
    drain_seconds: int,
) -> HttpServer:
    """Returns a server that is not started; after a stop, requests in flight have `drain_seconds` to finish."""
    config = uvicorn.Config(
        protocol.application,  # type: ignore[arg-type]  # no ASGI application: the protocol calls it
        interface="asgi3",
        log_config=None,
        access_log=False,
        http=protocol,
        ws="none",
        proxy_headers=False,  # any client can send X-Forwarded-For; authentication decides which proxies to trust
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )
    config.load()
    set_tls(config, tls)
    return HttpServer(config, announce)
