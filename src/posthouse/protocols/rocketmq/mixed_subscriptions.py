"""Groups of the remoting protocol whose members have subscribed to a topic differently.

Clients of this protocol divide the queues of a topic among themselves, and each commits how far it has come
in its own. What a member does not want in its queues is behind that offset for the whole group, also if
another member wants it. The broker cannot hand it over: no member reads the queues of all. It says so, in its
log and in a metric of the topic.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from posthouse.broker.filters.filter import Filter
from posthouse.protocols.rocketmq.codec.heartbeats import SQL_EXPRESSION, Subscription

log = logging.getLogger(__name__)


class Subscribed(NamedTuple):
    """One member, in one topic."""

    client: str
    subscription: Subscription
    filter: Filter


class MixedSubscriptions:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, list[Filter]]] = {}
        """By group and topic: the filters that differ, each once."""

    def compare(self, group: str, members: Iterable[Subscribed]) -> None:
        """All members of the group are these now. The log tells of each topic once, as long as the group is
        mixed there."""
        wanted: defaultdict[str, dict[object, Subscribed]] = defaultdict(dict)
        for each in members:
            wanted[each.subscription.topic].setdefault(_meaning(each.subscription), each)
        mixed = {topic: list(found.values()) for topic, found in wanted.items() if len(found) > 1}
        known: Mapping[str, object] = self._by_group.get(group, {})
        for topic, found in mixed.items():
            if topic not in known:
                _warn(group, topic, *found[:2])
        if mixed:
            self._by_group[group] = {topic: [each.filter for each in found] for topic, found in mixed.items()}
        else:
            self._by_group.pop(group, None)

    def filters(self, group: str, topic: str) -> list[Filter]:
        """What members want, if that differs; otherwise nothing."""
        return self._by_group.get(group, {}).get(topic, [])


def _meaning(subscription: Subscription) -> object:
    """Equal for those that want the same messages, as far as that is seen without reading conditions."""
    text = subscription.expression.strip()
    if subscription.expression_type == SQL_EXPRESSION:
        return text
    return frozenset(part.strip() for part in (text or "*").split("||")) - {""}


def _warn(group: str, topic: str, one: Subscribed, other: Subscribed) -> None:
    log.warning(
        "group %s: clients %s and %s subscribe differently to topic %s, to %r and %r. Messages that only one "
        "of them wants are lost for the group if they are in a queue that the other reads. Give all clients "
        "of the group the same subscription, or each subscription a group of its own",
        group,
        one.client,
        other.client,
        topic,
        one.subscription.expression,
        other.subscription.expression,
    )
