"""Subscriptions to clients' metrics: which metrics, the interval, and which clients."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from posthouse.broker.groups.patterns import TopicPattern
from posthouse.broker.own_settings import Overrides, OwnSettings
from posthouse.model.errors import BadRequest, InvalidConfig, InvalidPattern
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
_SHORTEST_MS, _LONGEST_MS = 100, 3_600_000

SUBSCRIPTION_KEYS: Mapping[str, tuple[str, str]] = {
    "interval.ms": (str(DEFAULT_INTERVAL_MS), "How often clients push, in ms: 100 to 3600000."),
    "match": (
        "",
        "Of which clients, as NAME=PATTERN with commas between: client_id, client_instance_id, "
        "client_software_name, client_software_version, client_source_address, client_source_port.",
    ),
    "metrics": ("", "Prefixes of the metrics' names, with commas between; * for all."),
}
"""Each setting of a subscription with its default and its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """A client that pushes. The field names are those that a subscription can match."""

    client_instance_id: str
    client_id: str = ""
    client_software_name: str = ""
    client_software_version: str = ""
    client_source_address: str = ""
    client_source_port: str = ""


_MATCHED = frozenset(ClientIdentity.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSubscription:
    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, TopicPattern]

    def fits(self, client: ClientIdentity) -> bool:
        return all(pattern.matches(getattr(client, name)) for name, pattern in self.match.items())


class MetricsSubscriptions:
    """Owned by the event loop."""

    def __init__(self, storage: Storage) -> None:
        self.own = OwnSettings(storage, Space.CLIENT_METRICS, _check)
        self._parsed: dict[str, MetricsSubscription] = {}
        self.version = 0
        """Increases with every change."""

    def load(self) -> None:
        self.own.load()
        self._parse()

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed subscriptions; `state` is the content of `Space.CLIENT_METRICS`."""
        self.own.follow(state)
        self._parse()
        self.version += 1

    def _parse(self) -> None:
        self._parsed = {name: _parsed(self.own.get(name)) for name in self.own}

    def __iter__(self) -> Iterator[MetricsSubscription]:
        return iter(self._parsed.values())

    async def change(
        self, name: str, change: Callable[[Overrides], Overrides], *, validate_only: bool = False
    ) -> None:
        """`change` gets the current settings and returns all new ones; without any, the subscription is
        deleted."""
        await self.own.change(name, change, validate_only=validate_only)
        self._parsed.pop(name, None)
        if self.own.get(name):
            self._parsed[name] = _parsed(self.own.get(name))
        self.version += 1


def _check(name: str, overrides: Overrides) -> None:
    if not name:
        raise BadRequest("a subscription must have a name")
    _parsed(overrides)


def _parsed(overrides: Overrides) -> MetricsSubscription:
    for key in overrides:
        if key not in SUBSCRIPTION_KEYS:
            raise BadRequest(f"unknown setting of a subscription {key!r}")
    text = overrides.get("interval.ms", str(DEFAULT_INTERVAL_MS))
    try:
        interval = int(text)
    except ValueError:
        raise InvalidConfig(f"interval.ms must be a number, not {text!r}") from None
    if not _SHORTEST_MS <= interval <= _LONGEST_MS:
        raise BadRequest(f"interval.ms must be between {_SHORTEST_MS} and {_LONGEST_MS}, not {interval}")
    return MetricsSubscription(
        metrics=frozenset(_items(overrides.get("metrics", ""))),
        interval_ms=interval,
        match=dict(_pattern(each) for each in _items(overrides.get("match", ""))),
    )


def _pattern(text: str) -> tuple[str, TopicPattern]:
    name, equals, pattern = text.partition("=")
    if not equals or name.strip() not in _MATCHED:
        raise InvalidConfig(f"{text!r} matches no clients; write NAME=PATTERN with one of {sorted(_MATCHED)}")
    try:
        return name.strip(), TopicPattern(pattern.strip())
    except InvalidPattern as error:
        raise InvalidConfig(f"match: {error}") from None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
