"""Objects in a bucket of Amazon S3, or of a server with the same protocol.

Credentials are those in AWS's usual variables (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
AWS_WEB_IDENTITY_TOKEN_FILE, ...) or those of the machine. An object of more than 16 MiB is uploaded in parts.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store

from posthouse.model.errors import InvalidConfig
from posthouse.storage.shared.objects.probe import probe
from posthouse.storage.shared.objects.s3_address import S3Address, UploadChecksum
from posthouse.storage.shared.objects.s3_errors import S3Refusal
from posthouse.storage.shared.objects.store import (
    Buffer,
    ObjectDamaged,
    ObjectMissing,
    ObjectsAway,
    ObjectsRefused,
    Sign,
    StoredObject,
    check_key,
    check_prefix,
    seconds_for,
)

if TYPE_CHECKING:  # the client has the names of its types for type checkers only
    from obstore.store import S3Config

T = TypeVar("T")

_PART = 16 * 1024 * 1024
_PARTS_AT_ONCE = 4
_RETRIES = 2
"""Of a request that failed in a way that may be over at once. All tries together have the same timeout."""
_PAGE = 1000


class S3ObjectStore:
    def __init__(self, address: S3Address, *, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        try:
            self._store = _store(address, timeout)
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise InvalidConfig(f"{address.name}: {S3Refusal.of(error).sentence}") from error

    @property
    def name(self) -> str:
        return self._address.name

    @property
    def sign(self) -> Sign:
        return self._sign

    async def _sign(self, keys: Sequence[str], seconds: float) -> list[str]:
        for key in keys:
            check_key(key)
        if not keys:
            return []
        with self._meaning(f"sign addresses of {len(keys)} objects"):
            signing = obstore.sign_async(self._store, "GET", list(keys), timedelta(seconds=seconds))
            return list(await self._in_time(signing))

    async def put(self, key: str, data: Buffer) -> None:
        check_key(key)
        with self._meaning(f"put {key}"):
            putting = obstore.put_async(
                self._store, key, data, chunk_size=_PART, max_concurrency=_PARTS_AT_ONCE
            )
            await self._in_time(putting, len(data))

    async def read(self, key: str, start: int, size: int) -> bytes | memoryview:
        check_key(key)
        if not size:
            return b""
        with self._meaning(f"read {key}"):
            try:
                reading = obstore.get_range_async(self._store, key, start=start, length=size)
                # Not copied: the client's own buffer.
                data = memoryview(await self._in_time(reading, size))
            except FileNotFoundError as error:
                if S3Refusal.of(error).is_of_the_bucket:
                    raise
                raise ObjectMissing(f"object {key} is missing in {self.name}") from error
            except obstore.exceptions.GenericError as error:
                if not S3Refusal.of(error).is_of_the_range:
                    raise
                data = memoryview(b"")
        if len(data) != size:
            raise ObjectDamaged(f"object {key} in {self.name} has no {size} bytes from {start}")
        return data

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        for first in range(0, len(keys), _PAGE):
            with self._meaning(f"delete {len(keys)} objects"):
                await self._in_time(obstore.delete_async(self._store, keys[first : first + _PAGE]))

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        check_prefix(prefix)
        pages = obstore.list(self._store, prefix or None, chunk_size=_PAGE)
        while True:
            with self._meaning(f"list {prefix}"):
                try:
                    page = await self._in_time(anext(pages))
                except StopAsyncIteration:
                    return
            for each in page:
                modified_ms = int(each["last_modified"].timestamp() * 1000)
                yield StoredObject(key=each["path"], size=each["size"], modified_ms=modified_ms)

    async def check(self) -> None:
        await probe(
            self,
            "check the address, and that the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may "
            "get, put, list and delete objects in the bucket",
        )

    async def close(self) -> None:
        """No-op: connections end with the last reference to the client."""

    async def _in_time(self, work: Awaitable[T], size: int = 0) -> T:
        seconds = seconds_for(size, self._timeout)
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise TimeoutError(f"it did not answer in {seconds:g} s") from None

    @contextmanager
    def _meaning(self, doing: str) -> Iterator[None]:
        """Turn errors of the client into those of an object store. `doing` says in words what was tried."""
        try:
            yield
        except (obstore.exceptions.BaseError, OSError) as error:
            refusal = S3Refusal.of(error)
            kind = ObjectsRefused if refusal.is_final else ObjectsAway
            raise kind(f"{doing}: {self.name}: {refusal.sentence}") from error


def _store(address: S3Address, timeout: float) -> S3Store:
    endpoint = address.endpoint
    if endpoint is not None and not address.is_path_style:
        parts = urlsplit(endpoint)
        endpoint = f"{parts.scheme}://{address.bucket}.{parts.netloc}"
    # What is not given here, the client takes from AWS's variables.
    config: S3Config = {
        "virtual_hosted_style_request": not address.is_path_style,
        "unsigned_payload": address.upload_checksum is not UploadChecksum.SHA256,
    }
    if address.upload_checksum is UploadChecksum.CRC64NVME:
        config["checksum_algorithm"] = "crc64nvme"
    if endpoint is not None:
        config["endpoint"] = endpoint
    if address.region is not None:
        config["region"] = address.region
    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options={
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
            # Leaves time to try another address of the same name.
            "connect_timeout": timedelta(seconds=timeout / (1 + _RETRIES)),
            # Of a whole request, however large: `_in_time` ends it before.
            "timeout": timedelta(hours=1),
        },
        retry_config={
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=timeout),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    )
