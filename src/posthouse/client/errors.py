"""Errors of the client. Every message is one sentence that says what to do.

ClientError
├── BadArgument            the caller's arguments are invalid
├── BrokerUnreachable      no answer, or the connection was lost
│   └── BrokerSilent       connected, but no answer came in time
├── NoSegmentObjects       in `manifests`: there is no object store to read from
├── IncompatibleBroker     the server does not support the protocol or version
├── NotTrusted             a certificate was rejected
├── LoginRefused           a wrong name or password, or an unknown mechanism
├── CallRefused            the JSON API refused; carries the HTTP status
└── RequestRefused         the broker refused; carries Kafka's error code
    ├── TopicNotFound
    ├── TopicExists
    ├── PartitionNotFound
    ├── OffsetGone
    ├── MessageTooLarge
    ├── RecordsDamaged
    ├── GroupNotFound
    ├── GroupActive        the group has members
    ├── NotAllowed         the user lacks a permission
    ├── ProducerFenced     another producer has its transactional id, or its transaction took too long
    └── TopicNotReady      a retry may succeed
"""

from typing import ClassVar

UNKNOWN_TOPIC_CODES = frozenset({3, 100})
UNSUPPORTED_VERSION = 35


class ClientError(Exception):
    """Base of all errors that this client raises on purpose."""


class BadArgument(ClientError):
    pass


class BrokerUnreachable(ClientError):
    pass


class BrokerSilent(BrokerUnreachable):
    pass


class IncompatibleBroker(ClientError):
    pass


class NotTrusted(ClientError):
    pass


class LoginRefused(ClientError):
    pass


class CallRefused(ClientError):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RequestRefused(ClientError):
    codes: ClassVar[frozenset[int]] = frozenset()
    """The protocol's error codes for this class."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class TopicNotFound(RequestRefused):
    codes = UNKNOWN_TOPIC_CODES


class TopicExists(RequestRefused):
    codes = frozenset({36})


class PartitionNotFound(RequestRefused):
    pass


class OffsetGone(RequestRefused):
    codes = frozenset({1})


class MessageTooLarge(RequestRefused):
    codes = frozenset({10, 18})


class RecordsDamaged(RequestRefused):
    codes = frozenset({2})


class GroupNotFound(RequestRefused):
    codes = frozenset({69})


class GroupActive(RequestRefused):
    # Besides its own code, those that a commit gets from a client that is not a member.
    codes = frozenset({68, 22, 25, 27, 110, 113})


class ProducerFenced(RequestRefused):
    codes = frozenset({47, 49, 90})


class NotAllowed(RequestRefused):
    codes = frozenset({29, 30, 31, 53})


class TopicNotReady(RequestRefused):
    codes = frozenset({5, 6})


_KINDS: tuple[type[RequestRefused], ...] = (
    TopicNotFound,
    TopicExists,
    OffsetGone,
    MessageTooLarge,
    RecordsDamaged,
    GroupNotFound,
    GroupActive,
    NotAllowed,
    ProducerFenced,
    TopicNotReady,
)
_BY_CODE = {code: kind for kind in _KINDS for code in kind.codes}

_SENTENCES = {
    TopicNotFound: "there is no topic {name!r}; create it with 'posthouse topic create {name}', or see "
    "'posthouse topic list' for those there are",
    TopicExists: "the topic {name!r} exists already; choose another name, or change it with "
    "'posthouse topic alter {name}'",
    MessageTooLarge: "a batch is larger than topic {name!r} takes; send smaller messages, or raise its limit "
    "with 'posthouse topic alter {name} -c max.message.bytes=…'",
    RecordsDamaged: "records of topic {name!r} are damaged; find out which with 'posthouse log verify' "
    "on the broker's data directory",
    GroupNotFound: "there is no group {name!r}; see 'posthouse group list' for those there are",
    GroupActive: "group {name!r} has active members; stop its consumers and try again",
    ProducerFenced: "another producer has taken the place of {name!r}, or its transaction took longer than "
    "allowed and was aborted; write again from the beginning",
    TopicNotReady: "topic {name!r} is not ready yet; try again in a moment",
    OffsetGone: "topic {name!r} has no such offset; see 'posthouse topic describe {name}' for those it has",
}
_TO_CHANGE = frozenset({"delete", "alter", "alter-configs"})
_NOTHING_TO_CHANGE = "there is no topic {name!r}; see 'posthouse topic list' for those there are"
_PERMISSIONS = {
    29: "you may not do this to topic {name!r}; ask an administrator for "
    "'posthouse acl allow YOU {needs} topic {name}'",
    30: "you may not use group {name!r}; ask an administrator for "
    "'posthouse acl allow YOU {needs} group {name}'",
    31: "you may not do this to the broker; ask an administrator for "
    "'posthouse acl allow YOU {needs} cluster'",
    53: "you may not use the transactional id {name!r}; ask an administrator for "
    "'posthouse acl allow YOU {needs} transactional-id {name}'",
}
"""For these codes the broker's message has neither the name nor advice."""
_NEEDED = {29: "read,write", 30: "read", 31: "alter,describe", 53: "write"}
"""The permissions to ask for where the request may need one or the other."""
_PLAIN_CODES = {
    7: "the broker did not finish in time; try again",
    15: "the broker is starting or stopping; try again in a moment",
    17: "{name!r} is not a valid topic name; use letters, digits, '.', '_' and '-'",
    24: "{name!r} cannot be the name of a group; choose another one",
    48: "the transaction of {name!r} is no longer open; write again from the beginning",
    50: "the broker does not allow transactions to take that long; ask for less, or raise its setting "
    "transaction_max_timeout_ms",
    51: "the previous transaction is ending; try again in a moment",
    56: "the broker's storage does not accept writes; look at its log",
}


def refused(code: int, message: str | None, name: str, *, needs: str = "") -> RequestRefused:
    """The error for `code` about the topic or group `name`; our sentence where it helps more than theirs.

    `needs` is the permission that the request asks for, where there is only one.
    """
    kind = _BY_CODE.get(code, RequestRefused)
    if code in _PERMISSIONS:
        asked = _PERMISSIONS[code].format(name=name, needs=needs or _NEEDED[code])
        several = not needs and "," in _NEEDED[code]
        return kind(f"{asked}, or what of it you need" if several else asked, code)
    if kind is TopicNotFound and needs in _TO_CHANGE:
        return kind(_NOTHING_TO_CHANGE.format(name=name), code)
    sentence = _SENTENCES.get(kind) or message or _PLAIN_CODES.get(code)
    if sentence is None:
        sentence = f"the broker refused with error {code}; look at its log"
    elif sentence is not message:
        sentence = sentence.format(name=name)
    return kind(sentence.rstrip("."), code)
