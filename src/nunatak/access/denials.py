"""The hint of a 403 for a missing privilege: a command that the denied caller may run."""

import shlex

from nunatak.access import securables
from nunatak.access.privileges import names_of


def explain_hint(principal: str, missing: int, securable: str) -> str:
    """Names `nunatak access explain`, which every authenticated caller may run about itself.

    Users choose the names of principals and tables, and the line is made to be copied into a shell: names are quoted.
    """
    asked = " ".join(
        shlex.quote(word) for word in (principal, names_of(missing)[0], securables.format_securable(securable))
    )
    return f"`nunatak access explain {asked}` says which grants you hold there and who can grant this one."
