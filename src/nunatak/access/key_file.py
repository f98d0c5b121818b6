"""The encryption keys of stored secrets, in a file of their own: a copy of the database alone reveals no secret."""

import base64
import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nunatak.settings import Settings, SettingsError

KEY_FILE = "nunatak.keys"
KEY_BYTES = 32
ID_BYTES = 8
_HEADING = "# This file decrypts the secrets of the catalog's database. Keep it apart from backups of the database."


@dataclass(frozen=True, slots=True, repr=False)
class KeyFileKey:
    """`key_id` is derived from the material, so that a damaged line is detected."""

    key_id: str
    material: bytes

    def __repr__(self) -> str:
        return f"Key({self.key_id})"

    def line(self) -> str:
        return f"{self.key_id} {base64.b64encode(self.material).decode()}"


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The first key encrypts; each key decrypts what it encrypted."""

    keys: tuple[KeyFileKey, ...] = ()

    def find(self, key_id: str) -> KeyFileKey | None:
        return next((key for key in self.keys if key.key_id == key_id), None)

    def text(self) -> str:
        return "\n".join((_HEADING, *(key.line() for key in self.keys), ""))


def new_key() -> KeyFileKey:
    material = secrets.token_bytes(KEY_BYTES)
    return KeyFileKey(_id_of(material), material)


def _id_of(material: bytes) -> str:
    return hmac.new(material, b"nunatak credential id", hashlib.sha256).hexdigest()[: 2 * ID_BYTES]


def parse_keys(text: str, source: Path) -> KeyRing:
    """Parses lines of key id and base64; skips empty lines and comments (#). Raises SettingsError."""
    keys: list[KeyFileKey] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key_id, _, encoded = line.strip().partition(" ")
        try:
            material = base64.b64decode(encoded.strip(), validate=True)
        except ValueError:
            material = b""
        if len(material) != KEY_BYTES:
            raise SettingsError(f"line {number} of {source} is not `<key id> <base64 of {KEY_BYTES} bytes>`")
        if not hmac.compare_digest(_id_of(material).encode(), key_id.encode()):
            raise SettingsError(f"line {number} of {source} was damaged: its key is not the one of its id; restore it")
        keys.append(KeyFileKey(key_id, material))
    if not keys:
        raise SettingsError(f"{source} holds no key: restore it; if the catalog never held a secret, delete it")
    return KeyRing(tuple(keys))


class KeyFile:
    """The key ring in the file: created when the first key is needed, and read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ring = KeyRing()
        self._seen: tuple[int, int, int] | None = None

    def find(self, key_id: str) -> KeyFileKey | None:
        """Finds a key; reads the file again for an unknown id, which another server or an operator may have added."""
        return self._ring.find(key_id) or self.ring().find(key_id)

    def first(self) -> KeyFileKey:
        """Returns the key that encrypts, creating the file if it never existed; raises SettingsError."""
        ring = self.ring()
        if not ring.keys:
            # A file that was read before and is gone must not be replaced: a new key would not decrypt the old values.
            if self._seen is not None:
                raise SettingsError(
                    f"the key file {self.path} does not exist: restore it, stored secrets are encrypted with it"
                )
            ring = self.change(lambda kept: kept if kept.keys else KeyRing((new_key(),)))
        return ring.keys[0]

    def ring(self) -> KeyRing:
        """Returns the current ring, empty if there is no file; raises SettingsError."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return KeyRing()
        except OSError as error:
            raise SettingsError(f"the key file {self.path} cannot be read: {error.strerror}") from error
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._ring, self._seen = _read(self.path), seen
        return self._ring

    def changed_ms(self) -> int | None:
        """Returns the modification time of the file; None if there is no file."""
        try:
            return os.stat(self.path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def change(self, changed: Callable[[KeyRing], KeyRing]) -> KeyRing:
        """Replaces the ring by `changed(ring)` under an exclusive lock; durable on return. Raises SettingsError."""
        # Resolved, so that a symbolic link stays and its target is replaced.
        path = Path(os.path.realpath(self.path))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _exclusive_lock(path):
                before = self.ring()
                after = changed(before)
                if after != before:
                    _replace(path, after.text())
        except OSError as error:
            raise SettingsError(
                f"the key file {self.path} cannot be written: {error.strerror}; make its folder writable, "
                "or set key_file to a file that holds a line of `nunatak encryption-key generate`"
            ) from error
        return self.ring()


def open_key_file(settings: Settings) -> KeyFile:
    return KeyFile(Path(settings.key_file) if settings.key_file else settings.data / KEY_FILE)


def _read(path: Path) -> KeyRing:
    try:
        with open(path, encoding="ascii") as file:
            # The mode of the open file: the path could be replaced between a check and the read.
            mode = os.fstat(file.fileno()).st_mode
            if mode & 0o077:
                raise SettingsError(
                    f"the key file {path} can be read by others than its owner (mode {mode & 0o777:04o}): "
                    f"chmod 600 {path}, and consider `nunatak encryption-key rotate`"
                )
            return parse_keys(file.read(), path)
    except UnicodeDecodeError as error:
        raise SettingsError(f"the key file {path} is not text") from error
    except OSError as error:
        raise SettingsError(f"the key file {path} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    # A lock file of its own, because the key file is replaced and its lock would go with it.
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Replaces the file atomically, also across a crash; keeps its owner, even if root changes it."""
    new = Path(f"{path}.new")
    new.unlink(missing_ok=True)  # left behind by a crash: the lock excludes another writer
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(FileNotFoundError):
            owner = os.stat(path)
            if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
        with os.fdopen(descriptor, "w", encoding="ascii", closefd=False) as file:
            file.write(text)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
