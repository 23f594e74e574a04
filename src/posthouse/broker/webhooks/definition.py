"""What a webhook is: where its messages come from, where they are pushed, and how."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from posthouse.model.ids import GroupId
from posthouse.model.scopes import DEFAULT_NAMESPACE

_GROUP_PREFIX: Final = "webhook."
_DEAD_LETTER_PREFIX: Final = "dlq.webhook."


class Form(StrEnum):
    """What a request looks like."""

    RAW = "raw"
    """The value is the body."""
    STRUCTURED = "cloudevents"
    """A CloudEvent as JSON; several of them are a batch."""
    BINARY = "cloudevents-binary"
    """The value is the body, the attributes of the CloudEvent are headers."""


class Begin(StrEnum):
    """Where a webhook begins in its topic."""

    LATEST = "latest"
    EARLIEST = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    """A secret as it is stored, see `sealing`."""

    sealed: bytes
    valid_until_ms: int | None = None
    """None for the secret that stays; an older one signs, too, until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """An opened secret."""

    key: bytes = field(repr=False)
    valid_until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go, and how many."""

    url: str
    form: Form = Form.RAW
    batch: int = 1
    """Messages of one request at most."""
    concurrency: int = 8
    """Requests at a time."""
    rate: float | None = None
    """Messages a second."""
    timeout_seconds: float = 15.0
    """Of a whole request, from the connection on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    max_attempts: int = 16
    first_delay_seconds: float = 5.0
    longest_delay_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    name: str
    topic: str | None = None
    """None if it pushes the messages of a queue."""
    queue: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    """Of the queue."""
    target: Target
    filter: str | None = None
    """SQL conditions on the headers of records."""
    ordered: bool = False
    """Messages of one key are pushed one after the other."""
    retries: Retries = Retries()
    begin: Begin = Begin.LATEST
    created_ms: int
    paused: str | None = None
    """Why nothing is pushed."""
    secrets: tuple[SealedSecret, ...]
    """The newest first."""

    @property
    def group(self) -> GroupId:
        """The subscription that has its progress in the topic."""
        return group_of(self.name)

    @property
    def dead_letters(self) -> str:
        """The topic of its dead letters, and of those of a queue that has no dead-letter exchange."""
        return _DEAD_LETTER_PREFIX + self.name

    @property
    def source(self) -> str:
        """For people."""
        return f"queue {self.queue!r}" if self.topic is None else f"topic {self.topic!r}"


def group_of(webhook: str) -> GroupId:
    return GroupId(_GROUP_PREFIX + webhook)


def webhook_of(group: GroupId) -> str | None:
    """The name of the webhook whose group would be this one."""
    return group[len(_GROUP_PREFIX) :] if group.startswith(_GROUP_PREFIX) else None
