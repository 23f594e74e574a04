"""The virtual hosts of the rounds are worth more than one only if they can lie with different brokers."""

from tests.torture.queues.places import PLACES, QUEUES


def test_no_two_virtual_hosts_share_a_scope() -> None:
    assert len({place.scope for place in PLACES}) == len(PLACES)


def test_queues_of_different_virtual_hosts_have_different_names_in_the_history() -> None:
    assert len({place.label(queue) for place in PLACES for queue in QUEUES}) == len(PLACES) * len(QUEUES)
