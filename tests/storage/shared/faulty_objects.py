"""An object store with injected faults, by a script or by a seeded random."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatch
from random import Random

from posthouse.storage.shared.objects.store import (
    Buffer,
    ObjectDamaged,
    ObjectMissing,
    ObjectsAway,
    ObjectStore,
    Sign,
    StoredObject,
)


class Fault(Enum):
    DELAY = auto()
    """The call takes effect, later."""
    FAIL = auto()
    """The call takes no effect and is answered with ObjectsAway."""
    FAIL_AFTER = auto()
    """The call takes effect, but is answered with ObjectsAway."""
    TRUNCATE = auto()
    """A read finds fewer bytes than were written."""
    MISSING = auto()
    """A read finds no object."""
    SLOW_LIST = auto()
    """Each object of a listing takes time."""


_POSSIBLE = {
    "put": frozenset({Fault.DELAY, Fault.FAIL, Fault.FAIL_AFTER}),
    "read": frozenset({Fault.DELAY, Fault.FAIL, Fault.TRUNCATE, Fault.MISSING}),
    "delete": frozenset({Fault.DELAY, Fault.FAIL, Fault.FAIL_AFTER}),
    "list": frozenset({Fault.DELAY, Fault.FAIL, Fault.SLOW_LIST}),
}


@dataclass(slots=True)
class _Armed:
    fault: Fault
    call: str
    key: str
    after: int
    for_ever: bool


class FaultyObjectStore:
    """Counts calls by name. `fail` arms a fault, `gate` holds all calls back while it is clear.

    With `random` each call also has each fault of `rates` that it can have, with its probability.
    """

    def __init__(
        self,
        inner: ObjectStore,
        *,
        random: Random | None = None,
        rates: Mapping[Fault, float] | None = None,
        delay_seconds: float = 0.01,
    ) -> None:
        self._inner = inner
        self._random = random
        self._rates = dict(rates or {})
        self._delay_seconds = delay_seconds
        self._armed: list[_Armed] = []
        self.calls: Counter[str] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()

    def fail(
        self, fault: Fault, call: str, key: str = "*", *, after: int = 0, for_ever: bool = False
    ) -> None:
        """Let a call on keys that match have a fault, once or until `heal`; the first `after` have none.

        The key of a listing is its prefix; a delete has the fault if any of its keys matches.
        """
        assert fault in _POSSIBLE[call], f"a {call} has no {fault.name}"
        self._armed.append(_Armed(fault, call, key, after, for_ever))

    def heal(self) -> None:
        """No more faults, neither armed nor random."""
        self._armed.clear()
        self._rates.clear()

    @property
    def name(self) -> str:
        return f"faulty {self._inner.name}"

    @property
    def sign(self) -> Sign | None:
        return self._inner.sign

    async def put(self, key: str, data: Buffer) -> None:
        faults = await self._enter("put", [key])
        await self._inner.put(key, data)
        self._leave(faults, f"put {key}")

    async def read(self, key: str, start: int, size: int) -> bytes | memoryview:
        faults = await self._enter("read", [key])
        if Fault.MISSING in faults:
            raise ObjectMissing(f"object {key} is missing: injected")
        if Fault.TRUNCATE in faults:
            raise ObjectDamaged(f"object {key} has no {size} bytes from {start}: injected")
        return await self._inner.read(key, start, size)

    async def delete(self, keys: Sequence[str]) -> None:
        faults = await self._enter("delete", keys)
        await self._inner.delete(keys)
        self._leave(faults, f"delete {len(keys)} objects")

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        faults = await self._enter("list", [prefix])
        async for each in self._inner.list(prefix):
            if Fault.SLOW_LIST in faults:
                await asyncio.sleep(self._delay_seconds)
            yield each

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()

    async def _enter(self, call: str, keys: Sequence[str]) -> set[Fault]:
        """The faults of this call. Those that come before it takes effect have happened."""
        self.calls[call] += 1
        faults = self._scripted(call, keys) | self._drawn(call)
        self.faults.update(faults)
        await self.gate.wait()
        if Fault.DELAY in faults:
            await asyncio.sleep(self._delay_seconds)
        if Fault.FAIL in faults:
            raise ObjectsAway(f"{call} {', '.join(keys)}: injected, without effect")
        return faults

    def _leave(self, faults: set[Fault], doing: str) -> None:
        if Fault.FAIL_AFTER in faults:
            raise ObjectsAway(f"{doing}: injected, after it took effect")

    def _scripted(self, call: str, keys: Sequence[str]) -> set[Fault]:
        faults = set()
        for each in list(self._armed):
            if each.call == call and any(fnmatch(key, each.key) for key in keys):
                if each.after:
                    each.after -= 1
                    continue
                if not each.for_ever:
                    self._armed.remove(each)
                faults.add(each.fault)
        return faults

    def _drawn(self, call: str) -> set[Fault]:
        if self._random is None:
            return set()
        # Draws for every fault, so that a seed gives the same faults whatever the rates of others are.
        drawn = {fault for fault in Fault if self._random.random() < self._rates.get(fault, 0.0)}
        return drawn & _POSSIBLE[call]
