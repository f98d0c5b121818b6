"""Everything of uvicorn that is not its public API and that this package relies on.

No other module imports these names. uvicorn may change them in any release, so pyproject.toml bounds its version, and
tests/api/test_uvicorn_internals.py compares the installed version with the lists below and names what differs. Before
the bound is raised, that test and the tests of this package have to pass with the new version.
"""

import ssl

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["FlowControl", "HttpToolsProtocol", "ServerState", "set_tls"]

# Methods by class, with their parameters. Those of the protocol are overridden, called by our subclass, or called by
# httptools and the event loop on the inherited class.
METHODS: dict[type, dict[str, tuple[str, ...]]] = {
    HttpToolsProtocol: {
        "__init__": ("self", "config", "server_state", "app_state", "_loop"),
        "connection_made": ("self", "transport"),
        "connection_lost": ("self", "exc"),
        "data_received": ("self", "data"),
        "eof_received": ("self",),
        "pause_writing": ("self",),
        "resume_writing": ("self",),
        "shutdown": ("self",),
        "on_message_begin": ("self",),
        "on_url": ("self", "url"),
        "on_header": ("self", "name", "value"),
        "on_headers_complete": ("self",),
        "on_body": ("self", "body"),
        "on_message_complete": ("self",),
        "send_400_response": ("self", "msg"),
        "_unsupported_upgrade_warning": ("self",),
        "_should_upgrade": ("self",),
    },
    FlowControl: {
        "__init__": ("self", "transport"),
        "drain": ("self",),
        "pause_reading": ("self",),
        "resume_reading": ("self",),
    },
    uvicorn.Server: {
        "__init__": ("self", "config"),
        "startup": ("self", "sockets"),
        "capture_signals": ("self",),
        "handle_exit": ("self", "sig", "frame"),
        "serve": ("self", "sockets"),
    },
}

# Instance attributes that exist after construction.
ATTRIBUTES: dict[type, tuple[str, ...]] = {
    HttpToolsProtocol: (
        "client",
        "cycle",
        "expect_100_continue",
        "flow",
        "headers",
        "loop",
        "parser",
        "server_state",
        "tasks",
        "timeout_keep_alive",
        "transport",
    ),
    FlowControl: ("read_paused", "write_paused"),
    ServerState: ("connections", "tasks", "total_requests"),
    uvicorn.Server: ("started", "should_exit"),
    uvicorn.Config: ("loaded",),
}

# Attributes of a request's cycle that uvicorn's protocol reads and sets; our Exchange replaces its class.
CYCLE_ATTRIBUTES = frozenset({"disconnected", "keep_alive", "message_event", "response_complete"})


def set_tls(config: uvicorn.Config, context: ssl.SSLContext | None) -> None:
    """Sets this context, which uvicorn would otherwise build from file paths; `config` must be loaded."""
    config.ssl = context
