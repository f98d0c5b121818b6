"""The connection itself: sockets, TLS, HTTP/1.1, and requests refused before any handler sees them.

The server speaks HTTP/1.1, plain or over TLS 1.2 and 1.3; a proxy in front speaks HTTP/2 with clients that want it.
uvicorn accepts connections and shuts them down, httptools parses, and this package adds the rest:

    workers.py            the processes that share one address (not on SQLite, which has one)
    listeners.py          the sockets they listen on
    tls.py                the TLS context from the settings, and its renewal
    http_server.py        the configured uvicorn.Server
    uvicorn_internals.py  everything this package uses of uvicorn that is not its public API
    protocol.py           one connection: limits on heads, time and connections, pipelining, closing a connection
    connection.py         those limits as values: `ArrivalLimits`, `ConnectionGate`; the name in a client certificate
    exchange.py           one request and its response; the cache of parsed heads, because clients repeat them
    fast_path.py          loads of tables in this process' cache, answered in the protocol

The path of a request: bytes arrive in `CatalogProtocol.data_received`. The fast path answers a load that it knows.
Otherwise the head is parsed, or found in the cache of parsed heads, and becomes an `Exchange`. If the body is
announced and small, the exchange starts when all of it has arrived; otherwise it starts at once and the application
receives the body in parts. The exchange calls `App.respond` in a task of its own and writes the response in one piece.

Bodies are limited in one place, `api/bodies.py`, by the limit of the route. The protocol only handles a body that is
not read: it drains a small rest, and closes the connection before a large one.
"""
