"""Objects by their keys, with credentials and an address of our own: no broker has to sign anything."""

import threading

import pyarrow as pa
from pyarrow import fs

from posthouse.spark.errors import WrongOption
from posthouse.spark.segments.errors import ObjectDamaged, ObjectsAway, ObjectStale


class StoredObjects:
    """For several threads."""

    def __init__(self, url: str) -> None:
        """`url` is where the brokers have their objects: `s3://BUCKET/PREFIX?region=…`, as pyarrow writes it,
        or `file:///DIR`."""
        self._fs, self._base = open_store(url)
        self._lock = threading.Lock()
        self._open: tuple[str, pa.NativeFile] | None = None

    def origin(self, address: str) -> str:
        return self._base

    def read(self, address: str, start: int, size: int) -> bytes:
        """Exactly `size` bytes from `start` on. Raises ObjectError."""
        try:
            found: bytes = self._file(address).read_at(size, start)
        except FileNotFoundError:
            raise ObjectStale(f"object {address} is not in {self._base}") from None
        except (OSError, pa.ArrowException) as error:
            raise ObjectsAway(f"object {address} in {self._base} cannot be read: {error}") from None
        if len(found) != size:
            raise ObjectDamaged(f"object {address} in {self._base} has no {size} bytes from {start}")
        return found

    def _file(self, key: str) -> pa.NativeFile:
        """Neighbouring reads are of the same object: opening it costs a request."""
        with self._lock:
            if self._open is None or self._open[0] != key:
                self._open = key, self._fs.open_input_file(f"{self._base}/{key}")
            return self._open[1]

    def close(self) -> None:
        with self._lock:
            self._open = None


def open_store(url: str) -> tuple[fs.FileSystem, str]:
    """File system and path. Raises WrongOption; whether the store answers is not known yet."""
    try:
        made, base = fs.FileSystem.from_uri(url)
    except (ValueError, OSError, pa.ArrowException):
        # Neither the address nor pyarrow's words about it: it may have credentials.
        raise WrongOption(
            "the option 'objectStore' is not an address that can be read; write "
            "s3://BUCKET/PREFIX?region=NAME or file:///DIR"
        ) from None
    return made, base.rstrip("/")
