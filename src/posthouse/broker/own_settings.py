"""Stored overrides of named objects: groups, the broker, subscriptions to clients' metrics.

Storage has one entry for each object with overrides, in the space of its kind:

    key    name in UTF-8
    value  JSON object in UTF-8: name of the setting to its text

A value is replaced as a whole: after a crash an object has all of its old settings or all of its new ones.
"""

import json
from collections.abc import Callable, Iterator, Mapping

from posthouse.broker.changes import SerializedChanges
from posthouse.broker.stored_entries import readable_entries
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

Overrides = Mapping[str, str]
_NONE: Overrides = {}


class OwnSettings:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, space: Space, accept: Callable[[str, Overrides], object]) -> None:
        """`accept` raises if an object must not have these settings."""
        self._storage = storage
        self._space = space
        self._accept = accept
        self._overrides: dict[str, Overrides] = {}
        self._changes = SerializedChanges()
        """Serialized: each change starts from the stored result of the previous one."""

    def load(self) -> None:
        self._overrides = dict(_read(*entry) for entry in self._storage.take_state(self._space).items())

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed settings; `state` is the content of the space."""
        self._overrides = dict(readable_entries(self._space, state, _read))

    def __iter__(self) -> Iterator[str]:
        """The names of objects with overrides."""
        return iter(self._overrides)

    def get(self, name: str) -> Overrides:
        return self._overrides.get(name, _NONE)

    async def change(
        self, name: str, change: Callable[[Overrides], Overrides], *, validate_only: bool = False
    ) -> Overrides:
        """`change` gets the current overrides and returns all new ones."""
        return await self._changes.make(self._change(name, change, validate_only))

    async def _change(
        self, name: str, change: Callable[[Overrides], Overrides], validate_only: bool
    ) -> Overrides:
        wanted = dict(change(self.get(name)))
        self._accept(name, wanted)
        if not validate_only:
            value = json.dumps(wanted).encode() if wanted else None
            await self._storage.commit([Put(self._space, name.encode(), value)])
            if wanted:
                self._overrides[name] = wanted
            else:
                self._overrides.pop(name, None)
        return wanted


def _read(key: bytes, value: bytes) -> tuple[str, Overrides]:
    return key.decode(), dict(json.loads(value))
