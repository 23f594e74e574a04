"""An object store whose calls are counted and timed."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from posthouse.model.errors import Unavailable
from posthouse.model.histogram import Histogram
from posthouse.storage.shared.objects.store import Buffer, ObjectStore, StoredObject


class OperationMetrics:
    __slots__ = ("bytes", "failures", "objects", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()
        """Of all calls, also of those that failed. Its count is the number of calls."""
        self.failures = 0
        self.objects = 0
        """That were put, read, deleted or listed."""
        self.bytes = 0
        """That were put or read."""


class ObjectStoreMetrics:
    __slots__ = ("delete", "list", "put", "read")

    def __init__(self) -> None:
        self.put = OperationMetrics()
        self.read = OperationMetrics()
        self.delete = OperationMetrics()
        self.list = OperationMetrics()
        """A listing is one call, with the time that its consumer took."""


class MeasuredObjectStore:
    def __init__(self, inner: ObjectStore, metrics: ObjectStoreMetrics) -> None:
        self._inner = inner
        self._metrics = metrics

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, data: Buffer) -> None:
        with _measured(self._metrics.put) as metrics:
            await self._inner.put(key, data)
            metrics.objects += 1
            metrics.bytes += len(data)

    async def read(self, key: str, start: int, size: int) -> bytes:
        with _measured(self._metrics.read) as metrics:
            data = await self._inner.read(key, start, size)
            metrics.objects += 1
            metrics.bytes += size
            return data

    async def delete(self, keys: Sequence[str]) -> None:
        with _measured(self._metrics.delete) as metrics:
            await self._inner.delete(keys)
            metrics.objects += len(keys)

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        with _measured(self._metrics.list) as metrics:
            async for each in self._inner.list(prefix):
                metrics.objects += 1
                yield each

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()


@contextmanager
def _measured(metrics: OperationMetrics) -> Iterator[OperationMetrics]:
    began = time.perf_counter()
    try:
        yield metrics
    except Unavailable:
        metrics.failures += 1
        raise
    finally:
        metrics.seconds.observe(time.perf_counter() - began)
