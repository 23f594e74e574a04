import pytest

from posthouse.model.errors import InvalidTopicName
from posthouse.protocols.rocketmq.names import (
    check_group_name,
    check_may_create,
    check_may_write,
    dead_letter_topic,
    is_of_group,
    retry_topic,
    topic_name,
)


@pytest.mark.parametrize(
    ("name", "stored"),
    [("orders", "orders"), ("a_b-C9", "a_b-C9"), ("%RETRY%g", ".RETRY.g"), ("a%b", "a.b"), ("a.b", "a.b")],
)
def test_names_in_the_log(name: str, stored: str) -> None:
    assert topic_name(name) == stored


@pytest.mark.parametrize("name", ["", "a b", "a|b", "ä", ":x", "%", "%%", "a\x01", "x" * 250])
def test_names_that_the_log_cannot_have(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        topic_name(name)
    with pytest.raises(InvalidTopicName):
        check_may_create(name)


def test_topics_of_upstream_itself() -> None:
    for name in ("TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        with pytest.raises(InvalidTopicName, match="the broker's own"):
            check_may_write(name)
    check_may_write("RMQ_SYS_TRACE_TOPIC")  # clients write to it themselves


def test_the_longest_topic() -> None:
    check_may_create("x" * 127)
    with pytest.raises(InvalidTopicName, match="127 characters, this one has 128"):
        check_may_create("x" * 128)


def test_the_longest_group_has_its_topics() -> None:
    longest = "g" * 242
    check_group_name(longest)
    check_may_create(retry_topic(longest))
    check_may_create(dead_letter_topic(longest))
    with pytest.raises(InvalidTopicName, match="242 characters, this one has 243"):
        check_group_name(longest + "g")
    with pytest.raises(InvalidTopicName):
        check_group_name("")


def test_topics_of_groups() -> None:
    assert (retry_topic("g"), dead_letter_topic("g")) == ("%RETRY%g", "%DLQ%g")
    assert is_of_group("%RETRY%g") and is_of_group("%DLQ%g")
    assert not is_of_group("RETRY%g") and not is_of_group("g")
