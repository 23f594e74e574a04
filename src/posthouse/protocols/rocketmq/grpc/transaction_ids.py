"""Transaction ids of clients that have no producer groups: half messages of a topic belong to a group of the
topic's own, so that a producer decides only messages of a topic that it may write to.
"""

from string import hexdigits
from typing import Final

from posthouse.model.errors import UnknownTransaction

_GROUP_OF_TOPIC: Final = "%TOPIC%"
_DIGITS: Final = 16


def group_of_topic(topic: str) -> str:
    return _GROUP_OF_TOPIC + topic


def topic_of_group(group: str) -> str | None:
    """None if it is a group that producers have named."""
    return group.removeprefix(_GROUP_OF_TOPIC) if group.startswith(_GROUP_OF_TOPIC) else None


def transaction_id(id: int) -> str:
    return f"{id:0{_DIGITS}X}"


def half_message_id(transaction: str) -> int:
    """Raises UnknownTransaction."""
    if len(transaction) == _DIGITS and all(each in hexdigits for each in transaction):
        return int(transaction, 16)
    raise UnknownTransaction(f"{transaction[:50]!r} is no transaction id of this broker")
