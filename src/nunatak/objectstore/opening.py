"""Opens the storage that a profile describes."""

from nunatak.objectstore.cloud_storage import CloudStorage
from nunatak.objectstore.cloud_stores import require_scheme
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import LocalProfile, StorageProfile, StorageSecret
from nunatak.objectstore.signing.signers import make_signer
from nunatak.objectstore.storage import Storage
from nunatak.objectstore.vending.vendors import make_vendor


def open_storage(profile: StorageProfile, secret: StorageSecret | None, home: Location, local: LocalStorage) -> Storage:
    """Returns the storage of a warehouse whose location is `home`; all local warehouses share `local`.

    Raises BadRequest if the profile does not serve the location, InternalError if its library is not installed.
    """
    if isinstance(profile, LocalProfile):
        require_scheme(profile, home)
        return local
    return CloudStorage(profile, secret, home, vendor=make_vendor(profile, secret), signer=make_signer(profile, secret))
