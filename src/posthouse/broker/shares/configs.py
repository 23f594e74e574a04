"""The settings that groups have of their own. They may be there before the group is.

Storage has one entry per group in `Space.GROUP_CONFIGS`:

    key    group in UTF-8
    value  JSON object in UTF-8: name of the setting to its text
"""

import json
import logging
from collections.abc import Iterator, Mapping

from posthouse.broker.shares.config import ShareConfig
from posthouse.model.errors import InvalidConfig, InvalidGroupId
from posthouse.model.ids import GroupId
from posthouse.storage.interface import Put, Space, Storage

log = logging.getLogger(__name__)

_NONE: Mapping[str, str] = {}


class ShareConfigs:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, defaults: ShareConfig) -> None:
        self._storage = storage
        self.defaults = defaults
        self._overrides: dict[GroupId, Mapping[str, str]] = {}
        self._configs: dict[GroupId, ShareConfig] = {}

    def load(self) -> None:
        for key, value in self._storage.take_state(Space.GROUP_CONFIGS).items():
            self._take(GroupId(key.decode()), json.loads(value))

    def _take(self, group: GroupId, overrides: Mapping[str, str]) -> None:
        self._overrides[group] = overrides
        try:
            self._configs[group] = self.defaults.with_overrides(overrides)
        except InvalidConfig as error:  # it was valid with the defaults that the broker had before
            log.warning("the group %r has the default settings: %s", group, error)

    def __iter__(self) -> Iterator[GroupId]:
        """The groups that have settings of their own."""
        return iter(self._overrides)

    def get(self, group: GroupId) -> ShareConfig:
        return self._configs.get(group, self.defaults)

    def overrides(self, group: GroupId) -> Mapping[str, str]:
        return self._overrides.get(group, _NONE)

    async def replace(
        self, group: GroupId, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """All that the group is to have of its own. Raises InvalidConfig."""
        if not group:
            raise InvalidGroupId("a group must have a name")
        self.defaults.with_overrides(overrides)
        if validate_only:
            return
        value = json.dumps(dict(overrides)).encode() if overrides else None
        await self._storage.commit([Put(Space.GROUP_CONFIGS, group.encode(), value)])
        if overrides:
            self._take(group, dict(overrides))
        else:
            self._overrides.pop(group, None)
            self._configs.pop(group, None)
