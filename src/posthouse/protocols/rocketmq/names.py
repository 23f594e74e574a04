"""Names of RocketMQ in the log. Its names have letters, digits, `_`, `-`, `%` and `|`, those of topics in the
log letters, digits, `_`, `-` and `.`: so a `.` there stands for a `%` here, and either is understood.
"""

from functools import lru_cache
from typing import Final

from posthouse.model.errors import InvalidTopicName
from posthouse.model.topics import MAX_NAME_LENGTH, check_topic_name

CLUSTER: Final = "posthouse"
"""The name of the cluster in routes."""
BROKER: Final = "posthouse"
"""The name of the one broker in routes. Clients keep offsets under it, so it never changes."""
REPLY_TOPIC: Final = f"{CLUSTER}_REPLY_TOPIC"
"""Replies to requests are sent to it. They are pushed to the client that waits, and not stored."""
RETRY: Final = "%RETRY%"
DEAD_LETTERS: Final = "%DLQ%"
DEFAULT_TOPIC: Final = "TBW102"
"""Producers ask for its route when a topic does not exist: that says how the topic would be created."""
_LONGEST: Final = 127
_REMEMBERED: Final = 1024
"""Names that were checked: each request checks one or two."""
_LONGEST_GROUP: Final = MAX_NAME_LENGTH - len(RETRY)
_RESERVED: Final = frozenset(
    {
        DEFAULT_TOPIC,
        REPLY_TOPIC,
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
"""Of upstream's own messages. Posthouse keeps those elsewhere."""


SYSTEM_TOPICS: Final = (DEFAULT_TOPIC, REPLY_TOPIC)
"""That have a route, and are no topics of the log."""


@lru_cache(_REMEMBERED)  # of good names only: an error is raised anew
def topic_name(name: str) -> str:
    """The name in the log. Raises InvalidTopicName."""
    translated = name.replace("%", ".")
    check_topic_name(translated)
    return translated


def client_name(topic: str) -> str:
    """The name of a topic of the log, as clients can have it."""
    return topic.replace(".", "%")


def check_may_write(name: str) -> None:
    """Raises InvalidTopicName for topics that are none here."""
    if name in _RESERVED:
        raise InvalidTopicName(f"the topic {name} is the broker's own; nobody writes to it")


def check_may_create(name: str) -> None:
    """Raises InvalidTopicName."""
    check_may_write(name)
    if len(name) > _LONGEST and not is_of_group(name):
        raise InvalidTopicName(f"a topic name may have {_LONGEST} characters, this one has {len(name)}")
    topic_name(name)


def check_group_name(group: str) -> None:
    """Raises InvalidTopicName: the group has topics of its name."""
    if not group or len(group) > _LONGEST_GROUP:
        raise InvalidTopicName(
            f"a group name has 1 to {_LONGEST_GROUP} characters, this one has {len(group)}"
        )
    topic_name(group)


def is_of_group(name: str) -> bool:
    """Whether it is the topic of a group's retries or dead letters, which the group needs."""
    return name.startswith((RETRY, DEAD_LETTERS))


def retry_topic(group: str) -> str:
    return RETRY + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTERS + group
