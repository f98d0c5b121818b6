"""The connection itself: sockets, TLS, HTTP/1.1, and what is refused before any handler sees it.

The server speaks HTTP/1.1, plain or over TLS 1.2 and 1.3; a proxy in front speaks HTTP/2 with clients that want it.
uvicorn accepts connections and shuts them down, httptools parses, and this package adds the rest:

    workers.py            the processes that share one address (not on SQLite, which has one)
    listeners.py          the sockets they listen on
    tls.py                the TLS context that the settings ask for, and its renewal
    http_server.py        uvicorn.Server as we run it
    uvicorn_internals.py  everything of uvicorn that is not its public API and that we rely on
    protocol.py           one connection: limits on heads, time and connections, pipelining, how a connection ends
    connection.py         those limits as values: `ArrivalLimits`, `ConnectionGate`; the name in a client certificate
    exchange.py           one request and its answer; the parsed heads that are kept because clients repeat them
    fast_path.py          loads of tables that this process holds, answered in the protocol

A request takes this way. Bytes arrive in `CatalogProtocol.data_received`. A load that the fast path knows is answered
there. Otherwise the head is parsed, or found among the heads parsed before, and becomes an `Exchange`. If the body is
announced and small, the exchange starts when all of it is here; otherwise it starts at once and the application
receives the body in parts. The exchange calls `App.respond` in a task of its own and writes the response in one piece.

Bodies are limited in one place, `api/bodies.py`, by what the route takes. The protocol only decides what happens to a
body that nobody reads: a small rest is read and dropped, before a large one the connection is closed.
"""
