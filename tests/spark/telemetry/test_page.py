"""The statements of the page about telemetry ask views that exist; its commands are followed by tests/install."""

import re

from nunatak_spark.telemetry.views import BY_NAME
from tests.support.pages import DOCS, blocks_with


def test_the_page_names_every_view() -> None:
    (statements,) = blocks_with(DOCS / "how-to" / "see-what-happens.md", "sql", "view")

    assert set(re.findall(r"lake\.system\.(\w+)", statements)) == set(BY_NAME)
