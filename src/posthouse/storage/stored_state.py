"""State that was stored before the storage was opened, until the broker takes it."""

from collections.abc import Mapping

from posthouse.storage.owners import owner_of


class StoredState:
    """Returns every value only once: a space may hold millions, and the broker keeps them in its own form."""

    def __init__(self, spaces: Mapping[int, dict[bytes, bytes]] | None = None) -> None:
        self._spaces = dict(spaces or {})
        self._by_owner: dict[int, dict[bytes, dict[bytes, bytes]]] = {}
        """Spaces from which single owners' values were taken."""

    def take(self, space: int, owner: bytes | None = None) -> dict[bytes, bytes]:
        """The remaining values of a space, or of one owner in it."""
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
