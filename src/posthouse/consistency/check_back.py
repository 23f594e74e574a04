"""Half messages with a callback, for applications that cannot have an outbox.

    def was_committed(message: HalfMessage) -> Decision:
        return Decision.COMMIT if orders.has(message.name) else Decision.ROLL_BACK

    with HalfMessages("127.0.0.1:15672", group="shop", was_committed=was_committed) as half:
        with half.prepared("orders", {"id": 7}, key="ann", name="order-7"):
            orders.add(7)

The message is on disk before the block begins, and visible when it has ended well. Whatever happens in
between: the broker asks any live member of the group, and the callback decides.
"""

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from posthouse.client.closable import Closable
from posthouse.client.errors import BrokerUnreachable, CallRefused, ClientError
from posthouse.client.security import OPEN, Security
from posthouse.consistency.contents import Content, Headers
from posthouse.consistency.decisions import CheckCounts, Decision, HalfMessage, WasCommitted, decision_of
from posthouse.consistency.errors import DecidedOtherwise
from posthouse.consistency.half_message_calls import HalfMessageCalls

log = logging.getLogger(__name__)

CHECK_AFTER: Final = 6
PATIENCE: Final = 10.0
WAIT_SECONDS: Final = 2.0
"""Of one call for checks: `close` may have to wait for it."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0


class PreparedMessage:
    """Is decided by the end of its block, unless the block itself has decided it before."""

    def __init__(self, calls: HalfMessageCalls, message: HalfMessage) -> None:
        self._calls = calls
        self.message = message
        self.decision = Decision.UNKNOWN
        """What the broker has confirmed."""

    def commit(self) -> None:
        """Now, and not at the end of the block. Raises ClientError and DecidedOtherwise."""
        self._calls.decide(self.message, commit=True)
        self.decision = Decision.COMMIT

    def roll_back(self) -> None:
        """Raises ClientError and DecidedOtherwise."""
        self._calls.decide(self.message, commit=False)
        self.decision = Decision.ROLL_BACK


class HalfMessages(Closable):
    """A member of a group of producers. May be used by many threads; not over a fork after `start`."""

    def __init__(
        self,
        address: str,
        *,
        group: str,
        was_committed: WasCommitted,
        security: Security = OPEN,
        patience: float = PATIENCE,
    ) -> None:
        """`address` is that of the HTTP API. The broker is asked again for `patience` seconds while it cannot
        be reached."""
        self._calls = HalfMessageCalls(address, group, security=security, patience=patience)
        self._was_committed = was_committed
        self._group = group
        self._under_way: set[str] = set()
        """Names."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.counts = CheckCounts()

    def start(self) -> None:
        """From now on checks of the group are answered, in a thread. No-op if it was called before."""
        with self._starting:
            if self._thread is None and not self._stop.is_set():
                name = f"half messages of {self._group}"
                self._thread = threading.Thread(target=self._answer_checks, name=name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Returns when no callback runs any more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._calls.close()

    def __enter__(self) -> "HalfMessages":
        self.start()
        return self

    @contextmanager
    def prepared(
        self,
        topic: str,
        value: Content,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        name: str | None = None,
        partition: int | None = None,
        check_after: int = CHECK_AFTER,
    ) -> Iterator[PreparedMessage]:
        """Around the transaction that the message is about.

        Raises BadMessage and ClientError before the block runs, if the message is not prepared. When the
        block ends well the message is committed; if the broker cannot be reached then, a check does it. When
        it raises, the callback is asked at once: an error may also come after a commit. `name` is how the
        callback finds the transaction, a new one if it is not given. The first check comes after
        `check_after` seconds: choose more than the block takes.
        """
        self.start()
        name = name or str(uuid.uuid4())
        self._under_way.add(name)
        try:
            message = self._calls.prepare(
                name,
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                check_after=check_after,
            )
            prepared = PreparedMessage(self._calls, message)
            try:
                yield prepared
            except Exception:
                if prepared.decision is Decision.UNKNOWN:
                    self._answer(message)
                raise
            if prepared.decision is Decision.UNKNOWN:
                self._commit(prepared)
        finally:
            self._under_way.discard(name)

    def _commit(self, prepared: PreparedMessage) -> None:
        try:
            prepared.commit()
        except ClientError as error:
            if not is_passing(error):
                raise
            log.warning("%s is left to a check: %s", shown(prepared.message), error)

    def _answer_checks(self) -> None:
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            try:
                messages = self._calls.checks(seconds=WAIT_SECONDS)
            except ClientError as error:
                self.counts.errors += 1
                log.warning("half messages of %s: trying again in %.1f s: %s", self._group, pause, error)
                self._stop.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            for message in messages:
                # Its block runs in this process, and will decide it.
                if message.name not in self._under_way and not self._stop.is_set():
                    self._answer(message)

    def _answer(self, message: HalfMessage) -> None:
        decision = self._decided(message)
        if decision is Decision.UNKNOWN:
            self.counts.unknown += 1
            return
        try:
            self._calls.decide(message, commit=decision is Decision.COMMIT)
        except (ClientError, DecidedOtherwise) as error:
            self.counts.errors += 1
            log.warning("%s was not decided: %s", shown(message), error)
        else:
            count(self.counts, decision)

    def _decided(self, message: HalfMessage) -> Decision:
        try:
            return decision_of(self._was_committed(message))
        except Exception:
            log.exception("%s: the callback failed; it will be asked again", shown(message))
            return Decision.UNKNOWN


def is_passing(error: ClientError) -> bool:
    """A check will do what failed."""
    return isinstance(error, BrokerUnreachable) or (isinstance(error, CallRefused) and error.status >= 500)


def shown(message: HalfMessage) -> str:
    return f"half message {message.name or message.id!r} for topic {message.topic!r}"


def count(counts: CheckCounts, decision: Decision) -> None:
    if decision is Decision.COMMIT:
        counts.committed += 1
    else:
        counts.rolled_back += 1
