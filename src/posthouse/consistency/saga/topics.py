"""The topics of a saga, by its name."""

from typing import Final

from posthouse.client.client import Client
from posthouse.client.errors import TopicExists
from posthouse.consistency.errors import BadSaga

PARTITIONS: Final = 8
_EVENTS_KEPT_MS: Final = 30 * 24 * 3600 * 1000


def events_topic(name: str) -> str:
    """What happens to sagas, by their ids: the records that runners work off."""
    return f"saga.{name}.events"


def state_topic(name: str) -> str:
    """The last state of each saga by its id, compacted. The HTTP API of the broker finds it by this name."""
    return f"saga.{name}.state"


def create_topics(client: Client, name: str, partitions: int) -> None:
    """If they are missing. Raises ClientError, and BadSaga if they do not fit together."""
    settings = {
        state_topic(name): {"cleanup.policy": "compact"},
        events_topic(name): {"retention.ms": str(_EVENTS_KEPT_MS)},
    }
    for topic, wanted in settings.items():
        try:
            client.create_topic(topic, partitions=partitions, settings=wanted)
        except TopicExists:
            continue
    events, states = (client.topic(each).partitions for each in (events_topic(name), state_topic(name)))
    if events != states:
        raise BadSaga(
            f"topic {events_topic(name)!r} has {events} partitions and {state_topic(name)!r} has {states}; "
            "they need the same number"
        )
