"""An object store whose calls are counted and timed."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from posthouse.model.errors import Unavailable
from posthouse.storage.remote_metrics import ObjectCallMetrics
from posthouse.storage.shared.objects.store import Buffer, ObjectsAway, ObjectStore, Sign, StoredObject


class ObjectStoreMetrics:
    __slots__ = ("away_since", "delete", "failure", "list", "put", "read")

    def __init__(self) -> None:
        self.put = ObjectCallMetrics()
        self.read = ObjectCallMetrics()
        self.delete = ObjectCallMetrics()
        self.list = ObjectCallMetrics()
        """A listing is one call, with the time that its consumer took."""
        self.away_since: float | None = None
        """The monotonic time since when all calls have failed; None if the last one succeeded."""
        self.failure = ""
        """Of the last call that failed."""

    @property
    def by_operation(self) -> dict[str, ObjectCallMetrics]:
        return {"put": self.put, "read": self.read, "delete": self.delete, "list": self.list}


class MeasuredObjectStore:
    def __init__(self, inner: ObjectStore, metrics: ObjectStoreMetrics) -> None:
        self._inner = inner
        self._metrics = metrics

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def sign(self) -> Sign | None:
        return self._inner.sign

    async def put(self, key: str, data: Buffer) -> None:
        with self._measured(self._metrics.put) as metrics:
            await self._inner.put(key, data)
            metrics.objects += 1
            metrics.bytes += len(data)

    async def read(self, key: str, start: int, size: int) -> bytes | memoryview:
        with self._measured(self._metrics.read) as metrics:
            data = await self._inner.read(key, start, size)
            metrics.objects += 1
            metrics.bytes += size
            return data

    async def delete(self, keys: Sequence[str]) -> None:
        with self._measured(self._metrics.delete) as metrics:
            await self._inner.delete(keys)
            metrics.objects += len(keys)

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        with self._measured(self._metrics.list) as metrics:
            async for each in self._inner.list(prefix):
                metrics.objects += 1
                yield each

    async def check(self) -> None:
        await self._inner.check()
        self._metrics.away_since = None

    async def close(self) -> None:
        await self._inner.close()

    @contextmanager
    def _measured(self, metrics: ObjectCallMetrics) -> Iterator[ObjectCallMetrics]:
        began = time.monotonic()
        try:
            yield metrics
            self._metrics.away_since = None
        except Unavailable as error:
            metrics.failures += 1
            if isinstance(error, ObjectsAway):
                self._metrics.failure = str(error)
                if self._metrics.away_since is None:
                    self._metrics.away_since = began
            raise
        finally:
            metrics.seconds.observe(time.monotonic() - began)
