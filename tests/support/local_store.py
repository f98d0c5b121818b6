"""An object store of one local folder, without a server around it."""

from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.store import ObjectStore


def local_store(folder: str, *, linux_syscalls: bool = True) -> ObjectStore:
    store = ObjectStore(LocalStorage(linux_syscalls=linux_syscalls))
    store.attach(store.local, [parse_location(f"file://{folder}")])
    return store
