"""Broker settings that can change at run time, for the cluster or for this node. They are durable.

Settings of the node take precedence over those of the cluster, and these over the ones that the broker was
started with. There are three kinds, by prefix:

    topic.*         defaults of topics without an override: those of `TopicConfig`
    group.*         defaults of groups without an override: some of `GroupConfig`
    connections.*   limits on the number of connections: at this broker, and per address at all brokers
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from posthouse.broker.groups.config import GroupConfig
from posthouse.broker.groups.configs import GroupConfigs
from posthouse.broker.own_settings import Overrides, OwnSettings
from posthouse.broker.topics import Topics
from posthouse.model.errors import InvalidConfig
from posthouse.model.topic_config import TopicConfig
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

MOST_CONNECTIONS = "connections.max"
MOST_PER_ADDRESS = "connections.max.per.address"
_TOPIC, _GROUP = "topic.", "group."
_MOST = 2**31 - 1


class SettingScope(StrEnum):
    CLUSTER = "cluster"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    total: int
    per_address: int
    """0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effective:
    topics: TopicConfig
    groups: GroupConfig
    connections: ConnectionLimits


LimitConnections: TypeAlias = Callable[[ConnectionLimits], None]


def no_listeners(limits: ConnectionLimits) -> None:
    """A broker without listeners limits no connections."""


class DynamicSettings:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        topics: Topics,
        group_configs: GroupConfigs,
        limit_connections: LimitConnections,
    ) -> None:
        """`limit_connections` is called at the start, and when the limits change."""
        self._topics = topics
        self._group_configs = group_configs
        self._own = OwnSettings(storage, Space.BROKER_CONFIGS, self._check)
        self._started_with = _Effective(
            topics=topics.defaults,
            groups=group_configs.defaults,
            connections=ConnectionLimits(
                total=settings.max_connections, per_address=settings.max_connections_per_address
            ),
        )
        self._limit_connections = limit_connections

    def load(self) -> None:
        self._own.load()
        self._adopt()

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed settings; `state` is the content of `Space.BROKER_CONFIGS`."""
        self._own.follow(state)
        self._adopt()

    def _adopt(self) -> None:
        """Use stored settings. They may be invalid with the settings that the broker was started with."""
        try:
            effective = self._effective({})
            self._topics.adopt_defaults(effective.topics)
        except InvalidConfig as error:
            log.warning(
                "broker settings that were changed at run time are ignored; set them again: %s", error
            )
            return
        self._group_configs.set_defaults(effective.groups)
        self._limit_connections(effective.connections)

    def get(self, scope: SettingScope) -> Overrides:
        return self._own.get(scope)

    def value(self, name: str) -> str:
        """The effective value."""
        for scope in (SettingScope.NODE, SettingScope.CLUSTER):
            if name in self.get(scope):
                return self.get(scope)[name]
        return self.started_with(name)

    def started_with(self, name: str) -> str:
        start = self._started_with
        if name.startswith(_TOPIC):
            return start.topics.text(name.removeprefix(_TOPIC))
        if name.startswith(_GROUP):
            return start.groups.text(name.removeprefix(_GROUP))
        limits = start.connections
        return str(limits.total if name == MOST_CONNECTIONS else limits.per_address)

    async def change(
        self, scope: SettingScope, change: Callable[[Overrides], Overrides], *, validate_only: bool = False
    ) -> None:
        """`change` gets the settings of the scope and returns all new ones. Raises InvalidConfig."""
        await self._own.change(scope, change, validate_only=validate_only)
        await self._apply()

    def _check(self, scope: str, wanted: Overrides) -> None:
        effective = self._effective({SettingScope(scope): wanted})
        self._topics.check_defaults(effective.topics)

    async def _apply(self) -> None:
        effective = self._effective({})
        await self._topics.set_defaults(effective.topics)
        self._group_configs.set_defaults(effective.groups)
        self._limit_connections(effective.connections)

    def _effective(self, instead: Mapping[SettingScope, Overrides]) -> _Effective:
        own = {scope: instead.get(scope, self._own.get(scope)) for scope in SettingScope}
        merged = {**own[SettingScope.CLUSTER], **own[SettingScope.NODE]}
        start = self._started_with
        return _Effective(
            topics=start.topics.with_overrides(_beginning(merged, _TOPIC)),
            groups=start.groups.with_overrides(_beginning(merged, _GROUP)),
            connections=ConnectionLimits(
                total=_count(merged, MOST_CONNECTIONS, start.connections.total, least=1),
                per_address=_count(merged, MOST_PER_ADDRESS, start.connections.per_address, least=0),
            ),
        )


def _beginning(settings: Overrides, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}


def _count(settings: Overrides, name: str, default: int, *, least: int) -> int:
    text = settings.get(name)
    if text is None:
        return default
    try:
        count = int(text)
    except ValueError:
        raise InvalidConfig(f"{name} must be a number, not {text!r}") from None
    if not least <= count <= _MOST:
        raise InvalidConfig(f"{name} must be between {least} and {_MOST}, not {count}")
    return count
