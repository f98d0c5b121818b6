"""The OpenAPI document of the catalog API, generated from the route table and the types of bodies.

`python -m nunatak.api.openapi > spec/rest-catalog.json` writes the checked-in copy; the argument `management` selects
the management API instead.
"""

import json
import sys
from typing import Any

from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.openapi_management import management_document
from nunatak.api.openapi_operations import whole
from nunatak.api.openapi_schemas import HEADERS, PARAMETERS, WRITTEN
from nunatak.api.routes import ROUTES

Json = dict[str, Any]


def document() -> Json:
    """Returns the OpenAPI document of the catalog API."""
    info = {
        "title": "Nunatak, an Apache Iceberg REST catalog",
        "description": "The Iceberg REST protocol as this server speaks it. The same paths answer without "
        "`{prefix}` for the default warehouse, and below `/iceberg`, `/apis/iceberg` and `/api/catalog`.",
    }
    return whole(info, ROUTES, {"schemas": WRITTEN, "parameters": PARAMETERS, "headers": HEADERS})


def format_document(described: Json | None = None) -> str:
    """Returns a document as the text of its checked-in file."""
    return json.dumps(described or document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    wanted = management_document(MANAGEMENT_ROUTES) if sys.argv[1:] == ["management"] else document()
    sys.stdout.write(format_document(wanted))
