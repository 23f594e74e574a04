"""Groups whose members subscribe differently: what is compared, and that it is told once."""

import logging
from collections.abc import Iterator

import pytest

from posthouse.protocols.rocketmq.clients import compile_filter
from posthouse.protocols.rocketmq.codec.heartbeats import SQL_EXPRESSION, TAG_EXPRESSION, Subscription
from posthouse.protocols.rocketmq.mixed_subscriptions import MixedSubscriptions, Subscribed


def subscribed(*expressions: str, topic: str = "orders", kind: str = TAG_EXPRESSION) -> Iterator[Subscribed]:
    """Of one client for each expression."""
    for number, each in enumerate(expressions):
        subscription = Subscription(topic=topic, expression=each, expression_type=kind)
        yield Subscribed(f"client-{number}", subscription, compile_filter(kind, each))


@pytest.mark.parametrize(
    ("expressions", "kind"),
    [
        ((), TAG_EXPRESSION),
        (("red",), TAG_EXPRESSION),
        (("red || blue", "blue||red", " red||blue|| "), TAG_EXPRESSION),
        (("*", "", " * "), TAG_EXPRESSION),
        (("a > 5", " a > 5"), SQL_EXPRESSION),
    ],
)
def test_the_same_subscriptions(expressions: tuple[str, ...], kind: str) -> None:
    mixed = MixedSubscriptions()
    mixed.compare("group", subscribed(*expressions, kind=kind))
    assert mixed.filters("group", "orders") == []


def test_different_ones_until_they_are_the_same_again(caplog: pytest.LogCaptureFixture) -> None:
    mixed = MixedSubscriptions()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            mixed.compare("group", subscribed("red", "blue", "red"))
            assert len(mixed.filters("group", "orders")) == 2
            mixed.compare("group", subscribed("red", "blue", "*"))
            assert len(mixed.filters("group", "orders")) == 3
            mixed.compare("group", subscribed("blue"))
            assert mixed.filters("group", "orders") == []
    assert len(caplog.messages) == 2
    for word in ("group group", "client-0", "client-1", "topic orders", "'red'", "'blue'"):
        assert word in caplog.messages[0]


def test_topics_and_groups_are_apart(caplog: pytest.LogCaptureFixture) -> None:
    mixed = MixedSubscriptions()
    one, other = subscribed("red", topic="a"), subscribed("blue", topic="b")
    with caplog.at_level(logging.WARNING):
        mixed.compare("first", [*one, *other])
        mixed.compare("second", subscribed("blue", topic="a"))
    assert caplog.messages == []
    assert mixed.filters("first", "a") == mixed.filters("second", "a") == []


def test_tags_and_conditions_differ() -> None:
    mixed = MixedSubscriptions()
    mixed.compare("group", [*subscribed("a"), *subscribed("a", kind=SQL_EXPRESSION)])
    assert len(mixed.filters("group", "orders")) == 2
