"""Which consumer groups have clients now of protocols whose members the broker's core does not know."""

from collections.abc import Callable


class GroupUsers:
    """Shared by front ends; owned by the event loop."""

    def __init__(self) -> None:
        self._sources: list[Callable[[str], bool]] = []

    def add(self, has_members: Callable[[str], bool]) -> None:
        self._sources.append(has_members)

    def is_used(self, group: str) -> bool:
        return any(has_members(group) for has_members in self._sources)
