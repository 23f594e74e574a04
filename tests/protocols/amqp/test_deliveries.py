"""Delivery tags: what an acknowledgement is for."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.queues.message import Message
from posthouse.protocols.amqp.deliveries import Deliveries
from posthouse.protocols.amqp.errors import Refused


def holding(count: int) -> Deliveries:
    deliveries = Deliveries()
    for number in range(count):
        deliveries.hold(cast("Message", f"message {number + 1}"))
    return deliveries


def taken(deliveries: Deliveries, tag: int, multiple: bool) -> list[int]:
    return [delivery[0] for delivery in deliveries.take(tag, multiple)]


def test_one_or_all_up_to_a_tag_or_all() -> None:
    deliveries = holding(6)
    assert taken(deliveries, 2, False) == [2]
    assert taken(deliveries, 4, True) == [1, 3, 4]
    assert taken(deliveries, 0, True) == [5, 6]
    assert taken(deliveries, 0, True) == []
    assert deliveries.gotten == 0
    assert deliveries.hold(cast("Message", "one more")) == 7


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (3, False), (3, True), (7, False), (7, True)])
def test_a_tag_must_be_known(tag: int, multiple: bool) -> None:
    deliveries = holding(6)
    deliveries.take(3, True)
    with pytest.raises(Refused, match=f"unknown delivery tag {tag}"):
        deliveries.take(tag, multiple)
    assert len(deliveries.held) == 3


def test_what_is_put_back_can_be_taken_again() -> None:
    deliveries = holding(4)
    deliveries.put_back(deliveries.take(3, True))
    assert deliveries.gotten == 4
    assert sorted(taken(deliveries, 4, True)) == [1, 2, 3, 4]


@given(
    st.lists(
        st.one_of(
            st.just("deliver"),
            st.just("settled"),
            st.tuples(st.integers(0, 40), st.booleans(), st.booleans()),
        ),
        max_size=80,
    )
)
def test_as_a_plain_set_of_tags_would(steps: list[str | tuple[int, bool, bool]]) -> None:
    deliveries, expected, last = Deliveries(), set[int](), 0
    for step in steps:
        if step == "deliver":
            last += 1
            assert deliveries.hold(cast("Message", last)) == last
            expected.add(last)
        elif step == "settled":  # a delivery without acknowledgement
            last += 1
            deliveries.last_tag += 1
        elif isinstance(step, tuple):
            tag, multiple, puts_back = step
            if multiple and tag == 0:
                due = set(expected)
            elif tag not in expected:
                with pytest.raises(Refused):
                    deliveries.take(tag, multiple)
                continue
            else:
                due = {each for each in expected if each <= tag} if multiple else {tag}
            got = deliveries.take(tag, multiple)
            assert {each[0] for each in got} == due
            if puts_back:
                deliveries.put_back(got)
            else:
                expected -= due
        assert set(deliveries.held) == expected
        assert deliveries.gotten == len(expected)
