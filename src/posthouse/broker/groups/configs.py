"""Overrides of groups. They may exist before their group does."""

import logging
from collections.abc import Callable, Iterator, Mapping

from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.broker.groups.config import GroupConfig
from posthouse.broker.own_settings import Overrides, OwnSettings
from posthouse.broker.subscriptions.rules import SubscriptionRules
from posthouse.model.errors import InvalidConfig, InvalidGroupId
from posthouse.model.excerpts import excerpt
from posthouse.model.ids import GroupId
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)


class GroupConfigs:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, defaults: GroupConfig) -> None:
        self.defaults = defaults
        self._own = OwnSettings(storage, Space.GROUP_CONFIGS, self._check)
        self._configs: dict[GroupId, GroupConfig] = {}
        self._when_changed: list[Callable[[], None]] = []

    def when_changed(self, changed: Callable[[], None]) -> None:
        """Call it after settings of groups have changed."""
        self._when_changed.append(changed)

    def set_defaults(self, defaults: GroupConfig) -> None:
        if defaults != self.defaults:
            self.defaults = defaults
            self._take_all()

    def load(self) -> None:
        self._own.load()
        self._take_all()

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed overrides; `state` is the content of `Space.GROUP_CONFIGS`."""
        self._own.follow(state)
        self._configs.clear()
        self._take_all()

    def _take_all(self) -> None:
        for group in self:
            self._take(group, self.overrides(group))
        self._tell()

    def _tell(self) -> None:
        for changed in self._when_changed:
            changed()

    def __iter__(self) -> Iterator[GroupId]:
        """The groups with overrides."""
        return (GroupId(name) for name in self._own)

    def get(self, group: GroupId) -> GroupConfig:
        return self._configs.get(group, self.defaults)

    def subscription_rules(self, group: GroupId) -> SubscriptionRules:
        return self.get(group).subscription_rules

    def overrides(self, group: GroupId) -> Overrides:
        return self._own.get(group)

    async def change(
        self, group: GroupId, change: Callable[[Overrides], Overrides], *, validate_only: bool = False
    ) -> None:
        """`change` gets the overrides of the group and returns all new ones."""
        await self._own.change(group, change, validate_only=validate_only)
        self._configs.pop(group, None)
        if self.overrides(group):
            self._take(group, self.overrides(group))
        self._tell()

    def delivery_limits(self, group: GroupId) -> DeliveryLimits:
        return self.get(group).delivery_limits

    async def replace(self, group: GroupId, overrides: Overrides) -> None:
        """Set all overrides of the group. Raises InvalidConfig."""
        await self.change(group, lambda _: overrides)

    def _check(self, group: str, overrides: Overrides) -> None:
        if not group:
            raise InvalidGroupId("a group must have a name")
        self.defaults.with_overrides(overrides)

    def _take(self, group: GroupId, overrides: Overrides) -> None:
        """Load stored overrides. They may be invalid with the limits and defaults that the broker has now."""
        try:
            fitting = self.defaults.clamped(overrides)
            self._configs[group] = self.defaults.with_overrides(fitting)
        except InvalidConfig as error:
            log.warning("group %r: its own settings are not used, set them again: %s", excerpt(group), error)
            return
        for name, value in fitting.items():
            if value != overrides[name]:
                log.warning(
                    "group %r: %s=%s is outside the limits of this broker; %s is used",
                    excerpt(group),
                    name,
                    overrides[name],
                    value,
                )
