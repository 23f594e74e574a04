"""What a broker knows of its cluster, as the coordinator and as a member."""

from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from posthouse.model.address import Address
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.ids import TopicId
from posthouse.model.scopes import NAMESPACES
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.led_partitions import leader_of
from posthouse.protocols.kafka.nodes import NO_NODE_ID, MemberNode
from posthouse.protocols.leaders import leaders
from posthouse.protocols.membership import Membership, MemberStanding


def _broker(id: int, rack: str | None = None, **listeners: str) -> ClusterBroker:
    addresses = {name: Address.parse(address) for name, address in listeners.items()}
    return ClusterBroker(id=id, name=str(id), incarnation=uuid4(), addresses=addresses, rack=rack)


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


def _leaders(membership: Membership, topic: Topic = _TOPIC) -> list[int]:
    return [leader_of(each) for each in _node(membership).replicas(topic)]


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
    membership = _member(view)
    assert _node(membership).coordinator() is None
    assert set(_leaders(membership, _OF_NAMESPACE)) == {NO_NODE_ID}
    assert set(_leaders(membership)) == {1, 2, 3}


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
    found = {each.id: _leaders(replace(_member(), own=each)) for each in _ALL.brokers}
    expected = list(leaders(_TOPIC.id, 100, (1, 2, 3)))
    assert found == {1: expected, 2: expected, 3: expected}


def test_topics_of_namespaces_are_led_by_the_holder_of_their_scope() -> None:
    view = replace(_ALL, holders={NAMESPACES[3]: _THREE.incarnation, NAMESPACES[4]: _ONE.incarnation})
    assert set(_leaders(_member(view), _OF_NAMESPACE)) == {_THREE.id}


def test_leaders_follow_the_live_brokers() -> None:
    views = [_ALL, replace(_ALL, brokers=(_ONE, _THREE)), _ALL]
    node = _node(Membership(own=_ONE, view=lambda: views[0]))
    for brokers in ((1, 2, 3), (1, 3), (1, 2, 3)):
        assert node.replicas(_TOPIC) == tuple((each,) for each in leaders(_TOPIC.id, 100, brokers))
        del views[0]
        views.append(_ALL)


def test_brokers_that_the_client_cannot_reach_lead_nothing() -> None:
    only_tls = _broker(4, kafka_tls="broker-4:9093")
    view = replace(_ALL, brokers=(*_ALL.brokers, only_tls), holder_incarnation=only_tls.incarnation)
    node = _node(_member(view))
    assert set(_leaders(_member(view))) == {1, 2, 3}
    assert node.coordinator() is None
    assert [each.id for each in node.all()] == [1, 2, 3]


# Racks

_EAST = tuple(_broker(id, "east", kafka=f"broker-{id}:9092") for id in (1, 2))
_WEST = tuple(_broker(id, "west", kafka=f"broker-{id}:9092") for id in (3, 4))
_NOWHERE = _broker(5, kafka="broker-5:9092")
_RACKS = ClusterView(brokers=(*_EAST, *_WEST, _NOWHERE))


def _in(own: ClusterBroker, view: ClusterView = _RACKS) -> MemberNode:
    return _node(Membership(own=own, view=lambda: view))


def _sent_to(node: MemberNode, rack: str, topic: Topic = _TOPIC) -> list[int | None]:
    return [node.nearer(topic, partition, rack) for partition in range(topic.partitions)]


def test_all_brokers_of_other_racks_send_a_client_to_the_same_of_its_own() -> None:
    found = _sent_to(_in(_EAST[0]), "west")
    assert set(found) == {3, 4}
    for each in (_EAST[1], _NOWHERE):
        assert _sent_to(_in(each), "west") == found


@pytest.mark.parametrize("own", _WEST)
@pytest.mark.parametrize("rack", ["west", "", "unknown"])
def test_a_client_is_served_in_its_own_rack_or_if_there_is_no_better(own: ClusterBroker, rack: str) -> None:
    assert set(_sent_to(_in(own), rack)) == {None}


def test_clients_are_sent_to_replicas() -> None:
    node = _in(_EAST[0])
    listed = node.replicas(_TOPIC)
    assert all(each in replicas for each, replicas in zip(_sent_to(node, "west"), listed, strict=True))


def test_topics_of_namespaces_are_read_from_their_holder_in_its_rack() -> None:
    view = replace(_RACKS, holders={NAMESPACES[3]: _WEST[0].incarnation})
    node = _in(_EAST[0], view)
    assert set(_sent_to(node, "west", _OF_NAMESPACE)) == {3}
    assert set(_sent_to(_in(_WEST[0], view), "east", _OF_NAMESPACE)) == {1, 2}
    assert {each[0] for each in node.replicas(_OF_NAMESPACE)} == {3}
    moving = _in(_EAST[0])
    assert set(_sent_to(moving, "west", _OF_NAMESPACE)) == {3, 4}
    assert set(moving.replicas(_OF_NAMESPACE)) == {()}


def test_clients_are_sent_to_no_broker_that_is_gone_or_not_ready() -> None:
    views = [_RACKS]
    node = _node(Membership(own=_EAST[0], view=lambda: views[-1]))
    before = _sent_to(node, "west")
    views.append(replace(_RACKS, brokers=(*_EAST, _WEST[0], replace(_WEST[1], is_ready=False))))
    assert _sent_to(node, "west") == [each if each == 3 else None for each in before]
    views.append(replace(_RACKS, brokers=(*_EAST, _WEST[0])))
    assert set(_sent_to(node, "west")) == {3}
    views.append(replace(_RACKS, brokers=_EAST))
    assert set(_sent_to(node, "west")) == {None}
    views.append(_RACKS)
    assert _sent_to(node, "west") == before


def test_a_broker_that_is_cut_off_sends_no_client_on() -> None:
    membership = Membership(own=_EAST[0], view=lambda: _RACKS, member=MemberStanding(lambda: True))
    assert set(_sent_to(_node(membership), "west")) == {None}
