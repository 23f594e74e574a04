"""The filters of members that are gone are kept for a while, and not too many of them."""

import pytest

from posthouse.broker.filters.filter import Filter
from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.clients import compile_filter
from posthouse.protocols.rocketmq.grpc import departed_filters
from posthouse.protocols.rocketmq.grpc.departed_filters import KEPT_SECONDS, DepartedFilters

ONE, TWO = GroupId("one"), GroupId("two")


class Kept(DepartedFilters):
    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now)

    def keep_tag(self, group: GroupId, tag: str, topic: str = "orders") -> Filter:
        wanted = compile_filter("TAG", tag)
        self.keep(group, topic, ("TAG", tag), wanted)
        return wanted

    def tags(self, group: GroupId, topic: str = "orders") -> list[str]:
        return [text for _, text in self.of(group, topic)]


def test_each_group_and_topic_has_its_own() -> None:
    kept = Kept()
    red = kept.keep_tag(ONE, "red")
    kept.keep_tag(ONE, "green", "others")
    assert kept.of(ONE, "orders") == {("TAG", "red"): red}
    assert kept.tags(ONE, "others") == ["green"]
    assert kept.tags(TWO) == [] and len(kept) == 2


def test_they_expire_one_after_the_other() -> None:
    kept = Kept()
    kept.keep_tag(ONE, "red")
    kept.now = 1.0
    kept.keep_tag(TWO, "red")
    kept.now = KEPT_SECONDS
    assert kept.forget_expired() == {ONE}
    assert kept.tags(ONE) == [] and kept.tags(TWO) == ["red"]
    assert kept.forget_expired() == set()
    kept.now += 1.0
    assert kept.forget_expired() == {TWO}
    assert len(kept) == 0


def test_the_last_member_to_leave_counts() -> None:
    kept = Kept()
    kept.keep_tag(ONE, "red")
    kept.now = KEPT_SECONDS - 1
    kept.keep_tag(ONE, "red")
    kept.now = KEPT_SECONDS + 1
    assert kept.forget_expired() == set() and kept.tags(ONE) == ["red"]


def test_of_too_many_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departed_filters, "_MOST_OF_TOPIC", 2)
    monkeypatch.setattr(departed_filters, "_MOST", 3)
    kept = Kept()
    for tag in ("a", "b", "a", "c"):
        kept.keep_tag(ONE, tag)
    assert kept.tags(ONE) == ["a", "c"]
    assert kept.forget_expired() == {ONE}
    for tag in ("a", "b"):
        kept.keep_tag(TWO, tag)
    assert kept.forget_expired() == {ONE}
    assert kept.tags(ONE) == ["c"] and kept.tags(TWO) == ["a", "b"]
