"""Topic names for exchanges and queues, whose names may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.queues.names import topic_name, topic_prefixes
from posthouse.model.topics import check_topic_name

# Names that come close to each other and to the forms that we make.
_awkward = st.text("ax./-é", max_size=6) | st.text(max_size=300)


@pytest.mark.parametrize("name", ["orders", "a.b-c_d", ".a", "a.", "x", "X.a"])
def test_legal_names_are_topics_of_the_default_namespace(name: str) -> None:
    assert topic_name("/", name) == name


def test_other_namespaces_go_before() -> None:
    assert topic_name("staging", "orders") == "staging..orders"


@pytest.mark.parametrize(
    ("namespace", "name", "begin"),
    [
        ("/", "", "x.-."),
        ("/", ".", "x.-."),
        ("/", "..", "x.-."),
        ("/", "a..b", "x.a-b."),
        ("/", "x.a", "x.x-a."),
        ("/", "celery@host #1", "x.celery-host-1."),
        ("/", "größe", "x.gr-e."),
        ("/", "a" * 250, "x." + "a" * 64 + "."),
        ("my/host", "orders", "x.my-host-orders."),
        ("a.", "b", "x.a-b."),
        ("a", ".b", "x.a-b."),
        ("n" * 200, "b" * 200, "x." + "n" * 64 + "."),
        ("", "b", "x.b."),
    ],
)
def test_others_get_a_name_that_says_something(namespace: str, name: str, begin: str) -> None:
    topic = topic_name(namespace, name)
    assert topic.startswith(begin)
    assert len(topic) == len(begin) + 12
    assert ".." not in topic


@given(_awkward, _awkward)
def test_always_legal(namespace: str, name: str) -> None:
    check_topic_name(topic_name(namespace, name))


@given(st.tuples(_awkward, _awkward), st.tuples(_awkward, _awkward))
def test_different_for_different_ones(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (topic_name(*one) == topic_name(*other)) is (one == other)


@given(_awkward, _awkward)
def test_no_made_up_name_can_be_taken(namespace: str, name: str) -> None:
    """Whoever calls a queue like the topic of another one gets a different topic."""
    topic = topic_name(namespace, name)
    if (namespace, name) != ("/", topic):
        assert topic_name("/", topic) != topic


@given(_awkward, _awkward)
def test_the_topics_of_a_namespace_begin_in_a_few_ways(namespace: str, name: str) -> None:
    assert topic_name(namespace, name).startswith(topic_prefixes(namespace))


def test_namespaces_begin_differently() -> None:
    assert topic_prefixes("/") == ("",)
    assert topic_prefixes("other") == ("other..", "x.other")
    assert topic_prefixes("/strange one") == ("/strange one..", "x.strange-one")
