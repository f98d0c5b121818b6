"""The connection itself: sockets, TLS, HTTP/1.1, and what is refused before any handler sees it."""
