"""State that was put before a storage was opened, until the broker takes it."""

from collections.abc import Mapping

from posthouse.storage.owners import owner_of


class StoredState:
    """Gives every value out once: a space may hold millions, and the broker keeps them in its own form."""

    def __init__(self, spaces: Mapping[int, dict[bytes, bytes]] | None = None) -> None:
        self._spaces = dict(spaces or {})
        self._by_owner: dict[int, dict[bytes, dict[bytes, bytes]]] = {}
        """Spaces from which one owner's values were asked for."""

    def take(self, space: int, owner: bytes | None = None) -> dict[bytes, bytes]:
        """What is left of a space, or what is left there of one owner."""
        if owner is not None:
            return self._owners(space).pop(owner, {})
        left = self._spaces.pop(space, {})
        for values in self._by_owner.pop(space, {}).values():
            left |= values
        return left

    def _owners(self, space: int) -> dict[bytes, dict[bytes, bytes]]:
        owners = self._by_owner.setdefault(space, {})
        for key, value in self._spaces.pop(space, {}).items():
            owners.setdefault(owner_of(space, key), {})[key] = value
        return owners
