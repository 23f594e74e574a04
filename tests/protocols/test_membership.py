"""What a broker knows of its cluster, as the coordinator and as a member."""

from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from posthouse.model.address import Address
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.ids import TopicId
from posthouse.model.scopes import NAMESPACES
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.nodes import NO_NODE_ID, MemberNode
from posthouse.protocols.leaders import leaders
from posthouse.protocols.membership import Membership, MemberStanding


def _broker(id: int, **listeners: str) -> ClusterBroker:
    addresses = {name: Address.parse(address) for name, address in listeners.items()}
    return ClusterBroker(id=id, name=str(id), incarnation=uuid4(), addresses=addresses)


_ONE, _TWO, _THREE = (_broker(id, kafka=f"broker-{id}:9092") for id in (1, 2, 3))
_ALL = ClusterView(brokers=(_ONE, _TWO, _THREE), holder_incarnation=_TWO.incarnation, epoch=7)
_TOPIC = Topic(id=TopicId(bytes(16)), name="t", partitions=100)
_OF_NAMESPACE = replace(_TOPIC, scope=NAMESPACES[3])


@dataclass(slots=True)
class _Lease:
    is_valid: bool = True
    is_cut_off: bool = False
    epoch: int = 8
    seconds_left: float = 3.0


def _member(view: ClusterView = _ALL) -> Membership:
    return Membership(own=_ONE, view=lambda: view)


def _node(membership: Membership) -> MemberNode:
    return MemberNode(membership, "kafka", lambda scope: False)


def test_a_member_sees_the_holder_of_the_lease_as_coordinator() -> None:
    membership = _member()
    assert membership.coordinator() == _TWO
    assert membership.epoch == 7
    assert membership.may_serve()
    assert membership.may_read()


@pytest.mark.parametrize(
    "view",
    [
        replace(_ALL, holder_incarnation=None),
        replace(_ALL, holder_incarnation=uuid4()),
        replace(_ALL, holder_incarnation=_ONE.incarnation),
    ],
    ids=["the lease is free", "its holder is gone", "the view is of before this broker gave it up"],
)
def test_there_may_be_no_coordinator(view: ClusterView) -> None:
    node = _node(_member(view))
    assert node.coordinator() is None
    assert set(node.leaders(_OF_NAMESPACE)) == {NO_NODE_ID}
    assert set(node.leaders(_TOPIC)) == {1, 2, 3}


def test_the_coordinator_knows_itself_before_the_others_have_seen_it() -> None:
    membership = Membership(own=_ONE, view=lambda: _ALL, coordinating=_Lease)
    assert membership.coordinator() == _ONE
    assert (membership.epoch, membership.lease_seconds_left) == (8, 3.0)


def test_a_member_that_is_cut_off_only_reads() -> None:
    membership = replace(_member(), member=MemberStanding(lambda: True))
    assert not membership.may_serve()
    assert membership.may_read()
    assert membership.has_others()


def test_all_brokers_name_the_same_leaders() -> None:
    found = {each.id: _node(replace(_member(), own=each)).leaders(_TOPIC) for each in _ALL.brokers}
    assert found == dict.fromkeys((1, 2, 3), leaders(_TOPIC.id, 100, (1, 2, 3)))


def test_topics_of_namespaces_are_led_by_the_holder_of_their_scope() -> None:
    view = replace(_ALL, holders={NAMESPACES[3]: _THREE.incarnation, NAMESPACES[4]: _ONE.incarnation})
    assert set(_node(_member(view)).leaders(_OF_NAMESPACE)) == {_THREE.id}


def test_leaders_follow_the_live_brokers() -> None:
    views = [_ALL, replace(_ALL, brokers=(_ONE, _THREE)), _ALL]
    node = _node(Membership(own=_ONE, view=lambda: views[0]))
    for brokers in ((1, 2, 3), (1, 3), (1, 2, 3)):
        assert node.leaders(_TOPIC) == leaders(_TOPIC.id, 100, brokers)
        del views[0]
        views.append(_ALL)


def test_brokers_that_the_client_cannot_reach_lead_nothing() -> None:
    only_tls = _broker(4, kafka_tls="broker-4:9093")
    view = replace(_ALL, brokers=(*_ALL.brokers, only_tls), holder_incarnation=only_tls.incarnation)
    node = _node(_member(view))
    assert set(node.leaders(_TOPIC)) == {1, 2, 3}
    assert node.coordinator() is None
    assert [each.id for each in node.all()] == [1, 2, 3]
