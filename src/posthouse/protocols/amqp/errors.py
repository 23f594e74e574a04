"""AMQP's reply codes, and the one table from the broker's errors to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from posthouse.model import errors
from posthouse.model.errors import PosthouseError
from posthouse.protocols.amqp.codec.errors import FrameError


class ReplyCode(IntEnum):
    """Below 320 and from 403 to 406 a channel is closed, with the others the connection."""

    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


_OF_CHANNELS = frozenset(
    {
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    }
)
_LONGEST_TEXT = 255


class Refused(Exception):
    """A request is refused: `code` says whether the channel or the connection is closed."""

    def __init__(self, code: ReplyCode, explanation: str) -> None:
        super().__init__(explanation)
        self.code = code

    @property
    def closes_channel_only(self) -> bool:
        return self.code in _OF_CHANNELS

    @property
    def text(self) -> str:
        """As RabbitMQ writes it. A reply text has 255 bytes at most."""
        text = f"{self.code.name} - {self}"
        return text.encode()[:_LONGEST_TEXT].decode(errors="ignore")


INTERNAL = "the broker failed; its log says why"

_LOCKED = (
    "cannot obtain exclusive access to locked {subject}. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)

# The sentence is for where the subject is known, as in `queue 'q' in vhost '/'`; else the error has its own.
_REPLIES: dict[type[PosthouseError], tuple[ReplyCode, str | None]] = {
    errors.UnknownQueue: (ReplyCode.NOT_FOUND, "no {subject}"),
    errors.UnknownExchange: (ReplyCode.NOT_FOUND, "no {subject}"),
    errors.UnknownNamespace: (ReplyCode.NOT_ALLOWED, "vhost {subject} not found"),
    errors.NotFound: (ReplyCode.NOT_FOUND, None),
    errors.QueueLocked: (ReplyCode.RESOURCE_LOCKED, _LOCKED),
    errors.AccessRefused: (ReplyCode.ACCESS_REFUSED, None),
    errors.InUse: (ReplyCode.PRECONDITION_FAILED, "{subject} in use"),
    errors.NotEmpty: (ReplyCode.PRECONDITION_FAILED, "{subject} not empty"),
    errors.DefinitionMismatch: (ReplyCode.PRECONDITION_FAILED, None),
    errors.InvalidDefinition: (ReplyCode.PRECONDITION_FAILED, None),
    errors.QueueFull: (ReplyCode.PRECONDITION_FAILED, None),
    errors.RecordTooLarge: (ReplyCode.PRECONDITION_FAILED, None),
    errors.BadRequest: (ReplyCode.PRECONDITION_FAILED, None),
    # A client that is told so reconnects and tries again, which is what is left to do.
    errors.Unavailable: (ReplyCode.RESOURCE_ERROR, None),
    PosthouseError: (ReplyCode.INTERNAL_ERROR, None),
}


def translated(error: PosthouseError, subject: str | None = None) -> Refused:
    code, sentence = next(_REPLIES[kind] for kind in type(error).__mro__ if kind in _REPLIES)
    if sentence is None or subject is None:
        return Refused(code, str(error))
    return Refused(code, sentence.format(subject=subject))


@contextmanager
def speaking_of(subject: str) -> Iterator[None]:
    """The broker's errors in here are about `subject`."""
    try:
        yield
    except PosthouseError as error:
        raise translated(error, subject) from error


def refused_frame(error: FrameError) -> Refused:
    return Refused(ReplyCode(error.code), error.text)


def not_found(subject: str) -> Refused:
    return Refused(ReplyCode.NOT_FOUND, f"no {subject}")


def access_refused(explanation: str) -> Refused:
    return Refused(ReplyCode.ACCESS_REFUSED, explanation)


def precondition_failed(explanation: str) -> Refused:
    return Refused(ReplyCode.PRECONDITION_FAILED, explanation)


def not_implemented(explanation: str) -> Refused:
    return Refused(ReplyCode.NOT_IMPLEMENTED, explanation)


def not_supported(what: str, subject: str) -> Refused:
    """By streams, which keep their messages."""
    return not_implemented(f"{what} not supported by stream queues {subject}")


def channel_error(explanation: str) -> Refused:
    return Refused(ReplyCode.CHANNEL_ERROR, explanation)


def command_invalid(explanation: str) -> Refused:
    return Refused(ReplyCode.COMMAND_INVALID, explanation)


def not_allowed(explanation: str) -> Refused:
    return Refused(ReplyCode.NOT_ALLOWED, explanation)
