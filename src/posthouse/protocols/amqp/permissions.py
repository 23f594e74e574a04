"""What a session may do to which exchange and queue: permissions on topics, in RabbitMQ's words.

Exchanges and queues are topics of the same full name. A queue that the broker has named and that is exclusive
belongs to its session, and needs no permission: no other object can have that name. A name that a client has
chosen needs permission: there may be a topic of that name, whose records the queue would get.
"""

from collections.abc import Sequence
from typing import Final

from posthouse.broker.access.acls import ANY_NAME
from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.names import topic_name, topic_prefixes
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.protocols.amqp.errors import Refused, access_refused, not_allowed, precondition_failed
from posthouse.protocols.amqp.server_names import GENERATED
from posthouse.protocols.amqp.session import Session

_WORDS: Final = {
    Operation.READ: "read",
    Operation.WRITE: "write",
    Operation.CREATE: "configure",
    Operation.DELETE: "configure",
    Operation.DESCRIBE: "configure",
}
# For what is asked with every message: members of an enum are slow to look up.
_WRITE: Final = Operation.WRITE
_TOPIC: Final = Kind.TOPIC
_DEFAULT: Final = "amq.default"
"""What RabbitMQ calls the default exchange where it speaks of permissions."""


def check_vhost(guard: Guard, user: str, vhost: str) -> None:
    """The default one is open to all who have logged in, another one to those who may do something there."""
    if vhost != DEFAULT_NAMESPACE and not guard.reaches(Kind.TOPIC, topic_prefixes(vhost)):
        raise not_allowed(f"access to vhost '{vhost}' refused for user '{user}'")


def check_exchange(session: Session, operation: Operation, name: str) -> None:
    _check(session, operation, "exchange", name)


def check_queue(session: Session, operation: Operation, name: str) -> None:
    queue = session.namespace.queues.get(name)
    if queue is None or not _is_own(session, queue):
        _check(session, operation, "queue", name)


def check_own_queue(session: Session, name: str) -> None:
    """Limit the queues that need no permission, for users without any permission."""
    if not session.is_guarded:
        return
    if session.own_queues_left <= 0:
        there = sum(queue.session is session for queue in session.namespace.queues.values())
        session.own_queues_left = session.limits.max_own_queues - there
    if session.own_queues_left > 0:
        session.own_queues_left -= 1
    elif not session.guard.may(Operation.CREATE, Kind.TOPIC, topic_name(session.vhost, name)):
        raise precondition_failed(
            f"cannot declare {session.subject('queue', name)}: the connection has "
            f"{session.limits.max_own_queues} exclusive queues, all that it may have without permission"
        )


def note_purge(session: Session, name: str) -> None:
    """Record a purge in the audit log: it deletes all messages, and takes only permission to read."""
    session.guard.note("purge", f"{Kind.TOPIC}:{topic_name(session.vhost, name)}")


def check_onward(session: Session, exchange: str, key: str | None = None) -> None:
    """The broker will pass messages on to the exchange, with this key or, without one, with any."""
    if exchange:
        check_exchange(session, Operation.WRITE, exchange)
    elif key is not None:
        check_queue(session, Operation.WRITE, key)
    elif not session.guard.allows(_WRITE, _TOPIC, ANY_NAME):
        raise _refused(session, Operation.WRITE, "exchange", _DEFAULT)


def check_publish(session: Session, exchange: Exchange, key: bytes, more_keys: Sequence[bytes]) -> None:
    """Called for every message of a guarded session: one look-up among the decisions in the guard's cache."""
    backing = exchange.data
    if backing is None:
        _check_key(session, key)
        for each in more_keys:
            _check_key(session, each)
    else:
        assert isinstance(backing, BackingTopic)
        if not session.guard.may(_WRITE, _TOPIC, backing.name):
            check_exchange(session, _WRITE, exchange.name)


def _check_key(session: Session, key: bytes) -> None:
    """The default exchange has no topic of its own: it is the queue that is written to."""
    name = key.decode(errors="replace")
    queue = session.namespace.queues.get(name)
    if queue is None or not session.guard.may(_WRITE, _TOPIC, queue.backing.name):
        check_queue(session, _WRITE, name)


def _check(session: Session, operation: Operation, kind: str, name: str) -> None:
    if not session.guard.allows(operation, Kind.TOPIC, topic_name(session.vhost, name)):
        raise _refused(session, operation, kind, name)


def _is_own(session: Session, queue: LogQueue) -> bool:
    return queue.session is session and queue.definition.exclusive and queue.name.startswith(GENERATED)


def _refused(session: Session, operation: Operation, kind: str, name: str) -> Refused:
    subject = session.subject(kind, name)
    return access_refused(f"{_WORDS[operation]} access to {subject} refused for user '{session.user}'")
