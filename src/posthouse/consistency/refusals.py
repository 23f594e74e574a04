"""What a target has against messages of an outbox, and what stops a shard."""

from collections.abc import Mapping
from typing import Final

from posthouse.client.errors import (
    BadArgument,
    ClientError,
    MessageTooLarge,
    NotAllowed,
    RequestRefused,
    TopicNotFound,
)
from posthouse.consistency.errors import BrokerAhead

_TOPIC_REFUSED: Final = 29
_INVALID_TOPIC: Final = 17
_OF_MESSAGES: Final = frozenset({10, 17, 18, 29, 44, 87})
"""Codes of what is wrong with a message, or with its topic: too large, a name that cannot be, no permission,
against the settings of the topic."""


class MessagesRefused(ClientError):
    """The target has all messages of the batch but these."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """By the rows of the messages."""
        first = next(iter(reasons.values()))
        super().__init__(f"{len(reasons)} messages were refused, the first one because {first}")
        self.reasons = reasons


class TargetRefused(ClientError):
    """No message can be sent at the moment, or none at all until somebody changes something there."""


def is_about_messages(error: ClientError) -> bool:
    """False if a retry may succeed, or nothing can be sent at all."""
    if isinstance(error, BadArgument | TopicNotFound | MessageTooLarge):
        return True
    if isinstance(error, NotAllowed):
        return error.code == _TOPIC_REFUSED
    return isinstance(error, RequestRefused) and error.code in _OF_MESSAGES


def is_about_topic(error: ClientError) -> bool:
    """True if all messages of the topic are refused for the same reason."""
    return isinstance(error, TopicNotFound) or (
        isinstance(error, RequestRefused) and error.code in (_TOPIC_REFUSED, _INVALID_TOPIC)
    )


def ahead(name: str, last: int) -> BrokerAhead:
    return BrokerAhead(
        f"the broker has batch {last} of {name!r}, which the database does not know: it was restored, or a "
        "copy of it relays under the same name; stop the relays, and give the outbox a new name with "
        "'posthouse outbox rename --database URL'"
    )
