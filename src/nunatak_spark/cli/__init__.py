"""The commands that need Spark: entry points of the catalog's command line, see nunatak/cli/plugins.py."""
