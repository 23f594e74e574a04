"""The object store of an address."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from posthouse.model.errors import InvalidConfig
from posthouse.storage.shared.objects.directory import DirectoryObjectStore
from posthouse.storage.shared.objects.s3_address import parse_s3_address
from posthouse.storage.shared.objects.store import ObjectStore


def open_object_store(url: str, *, timeout: float) -> ObjectStore:
    """Raises InvalidConfig if the address is wrong. Whether the store answers is for its `check` to tell.

    `timeout`: seconds for each call.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidConfig(f"the address of the object store cannot be read: {error}") from None
    if parts.scheme == "file":
        if parts.netloc or parts.query or parts.fragment or not parts.path.strip("/"):
            raise InvalidConfig(
                "a directory for objects is written file:///DIR, with three slashes and nothing behind DIR"
            )
        return DirectoryObjectStore(Path(unquote(parts.path)), timeout=timeout)
    if parts.scheme == "s3":
        return _s3(url, timeout)
    raise InvalidConfig(
        f"{parts.scheme or 'nothing'!r} is not a kind of object store: write s3://BUCKET/PREFIX or file:///DIR"
    )


def _s3(url: str, timeout: float) -> ObjectStore:
    address = parse_s3_address(url)
    try:
        # Only brokers with a bucket have the client.
        from posthouse.storage.shared.objects.s3 import S3ObjectStore
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise InvalidConfig(
            'an object store of S3 needs the package obstore: pip install "posthouse[cluster]"'
        ) from None
    return S3ObjectStore(address, timeout=timeout)
