"""The three ways in which a test gets a catalog.

- `local.LocalCatalog`: the whole server in this process, without a socket. Quick; its clock and counters are at hand.
- `process.running_server`: one real `nunatak serve`, which can be killed and restarted.
- `cluster.running_cluster`: several of these on one database.

Each takes a data folder, environment variables, and `auth=True` to serve known principals only.
"""
