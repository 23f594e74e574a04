"""Routing as one would write it without a thought for speed: what the real one is held against."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind


class Mailbox:
    """Stands for a queue."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


def words(key: bytes) -> list[bytes]:
    return [] if key == b"" else key.split(b".")


def topic_matches(pattern: list[bytes], key: list[bytes]) -> bool:
    if not pattern:
        return not key
    first, rest = pattern[0], pattern[1:]
    if first == b"#":
        return any(topic_matches(rest, key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and first in (b"*", key[0]) and topic_matches(rest, key[1:])


def same(one: object, other: object) -> bool:
    """Two header values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return str(one) == str(other)
    one, other = _plain(one), _plain(other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return False
    return one == other


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        return int(value.replace(tzinfo=UTC).timestamp())
    return value


def headers_match(arguments: Mapping[str, object], headers: Mapping[str, object]) -> bool:
    mode = arguments.get("x-match", "all")
    holds = [
        name in headers and (value is None or same(value, headers[name]))
        for name, value in arguments.items()
        if name != "x-match" and (mode in ("all-with-x", "any-with-x") or not name.startswith("x-"))
    ]
    return any(holds) if mode in ("any", "any-with-x") else all(holds)


class NaiveRouter:
    def __init__(self) -> None:
        self.exchanges = {"": ExchangeDefinition(name="", kind=ExchangeKind.DIRECT)}
        self.queues: dict[str, Mailbox] = {}
        self.bindings: list[Binding] = []

    def bind(self, binding: Binding) -> bool:
        if self._place(binding) is not None:
            return False
        self.bindings.append(binding)
        return True

    def unbind(self, binding: Binding) -> bool:
        place = self._place(binding)
        if place is None:
            return False
        del self.bindings[place]
        return True

    def _place(self, binding: Binding) -> int | None:
        for place, each in enumerate(self.bindings):
            if _written(each) == _written(binding):
                return place
        return None

    def delete(self, name: str) -> list[Binding]:
        del self.exchanges[name]
        return self._drop(
            [each for each in self.bindings if each.source == name or _leads_to(each, name, exchange=True)]
        )

    def remove_queue(self, name: str) -> list[Binding]:
        del self.queues[name]
        return self._drop([each for each in self.bindings if _leads_to(each, name, exchange=False)])

    def _drop(self, gone: list[Binding]) -> list[Binding]:
        self.bindings = [each for each in self.bindings if not any(each is one for one in gone)]
        return gone

    def route(self, name: str, key: bytes, headers: Mapping[str, object]) -> tuple[Mailbox, ...]:
        found: list[Mailbox] = []
        seen = [name]
        for each in seen:
            queues, exchanges = self._matches(each, key, headers)
            for queue in queues:
                if queue not in found:
                    found.append(queue)
            alternate = self.exchanges[each].alternate
            if not queues and not exchanges and alternate in self.exchanges:
                exchanges = [alternate]
            for exchange in exchanges:
                if exchange not in seen:
                    seen.append(exchange)
        return tuple(found)

    def _matches(
        self, name: str, key: bytes, headers: Mapping[str, object]
    ) -> tuple[list[Mailbox], list[str]]:
        if not name:
            return [queue for queue in self.queues.values() if queue.name.encode() == key], []
        matched = [
            each
            for each in self.bindings
            if each.source == name and _matches(self.exchanges[name].kind, each, key, headers)
        ]
        return (
            [self.queues[each.destination] for each in matched if not each.to_exchange],
            [each.destination for each in matched if each.to_exchange],
        )


def _matches(kind: ExchangeKind, binding: Binding, key: bytes, headers: Mapping[str, object]) -> bool:
    match kind:
        case ExchangeKind.DIRECT:
            return binding.key == key
        case ExchangeKind.FANOUT:
            return True
        case ExchangeKind.TOPIC:
            return topic_matches(words(binding.key), words(key))
        case ExchangeKind.HEADERS:
            return headers_match(binding.arguments, headers)


def _leads_to(binding: Binding, name: str, *, exchange: bool) -> bool:
    return binding.destination == name and binding.to_exchange is exchange


def _written(binding: Binding) -> str:
    """Tells 1 from True, as == does not."""
    arguments = sorted(binding.arguments.items())
    return repr((binding.source, binding.destination, binding.to_exchange, binding.key, arguments))
