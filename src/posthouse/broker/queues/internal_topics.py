"""Topics that no client sees: the reference logs of queues. Their names begin as no client's can."""

from posthouse.model.ids import new_topic_id
from posthouse.model.scopes import Scope
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import INTERNAL_PREFIX, Topic

_QUEUE_PREFIX = f"{INTERNAL_PREFIX}queue:"
_OVERRIDES = {
    "retention.ms": "-1",
    "max.message.bytes": str(2**31 - 1),
    "segment.bytes": str(8 * 1024 * 1024),
}
_CONFIG = TopicConfig().with_overrides(_OVERRIDES)


def queue_topic(queue_id: bytes, lanes: int, scope: Scope | None) -> Topic:
    """A partition for each lane, and one behind them for the stash. `scope` is that of its namespace, None in
    a broker that is alone."""
    return Topic(
        id=new_topic_id(),
        name=f"{_QUEUE_PREFIX}{queue_id.hex()}",
        partitions=lanes + 1,
        overrides=_OVERRIDES,
        config=_CONFIG,
        scope=scope,
    )


def queue_of(topic: Topic) -> bytes | None:
    """The queue whose references it holds, if it is such a topic."""
    if not topic.name.startswith(_QUEUE_PREFIX):
        return None
    return bytes.fromhex(topic.name.removeprefix(_QUEUE_PREFIX))
