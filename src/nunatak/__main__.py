"""`python -m nunatak` is the command line."""

from nunatak.cli.main import main

main()
