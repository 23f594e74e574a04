"""Calls the steps of sagas, as a member of a group: any number of runners share the partitions.

A runner may be killed at any moment. What it has noted is done; what it was calling is called again, by the
runner that gets its partitions, with the same idempotency key.
"""

import logging
import threading
import time
from typing import Final

from posthouse.client.admin_client import AdminClient
from posthouse.client.client import Client
from posthouse.client.cluster import Cluster
from posthouse.client.errors import BadArgument, ClientError, MessageTooLarge
from posthouse.client.group_reading import GroupReading
from posthouse.client.positions import Start
from posthouse.client.reading import Fetched, Message
from posthouse.client.security import OPEN, Security
from posthouse.consistency.errors import BadSaga, Superseded
from posthouse.consistency.refusals import is_about_messages
from posthouse.consistency.saga.definition import Saga
from posthouse.consistency.saga.events import decode
from posthouse.consistency.saga.machine import Change, Machine
from posthouse.consistency.saga.partition import SagaPartition
from posthouse.consistency.saga.state import SagaState
from posthouse.consistency.saga.timers import Timers
from posthouse.consistency.saga.topics import PARTITIONS, create_topics

log = logging.getLogger(__name__)

_TIMEOUT: Final = 30.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0


class SagaRunner:
    """Belongs to one thread; `stop` may be set by any."""

    def __init__(
        self,
        saga: Saga,
        *,
        kafka: str,
        admin: str,
        security: Security = OPEN,
        partitions: int = PARTITIONS,
    ) -> None:
        """`admin` is the address of the HTTP API, for what is to come later. `partitions` is for topics that
        are not there yet. Raises BadSaga."""
        if not saga.steps:
            raise BadSaga(f"saga {saga.name!r} has no steps")
        self._saga = saga
        self._kafka = kafka
        self._admin = admin
        self._security = security
        self._partitions_wanted = partitions
        self.stop = threading.Event()
        self.changes = 0
        """That were noted."""

    def run(self) -> None:
        """Until `stop`, over losses of the broker. Raises BadSaga."""
        pause = _FIRST_PAUSE
        while not self.stop.is_set():
            before = self.changes
            try:
                self._serve()
            except (ClientError, Superseded) as error:
                if self.changes > before:
                    pause = _FIRST_PAUSE
                log.warning("saga %s: trying again in %.1f s: %s", self._saga.name, pause, error)
                self.stop.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _serve(self) -> None:
        cluster = Cluster(self._kafka, timeout=_TIMEOUT, security=self._security)
        with (
            AdminClient(self._admin, security=self._security) as admin,
            Client(self._kafka, security=self._security) as client,
        ):
            create_topics(client, self._saga.name, self._partitions_wanted)
            timers = Timers(admin, self._saga.events_topic)
            session = _Session(self._saga, cluster, client, timers, self.stop)
            try:
                session.run()
            finally:
                self.changes += session.changes
                session.close()
                cluster.close()


class _Session:
    """A runner as one member of its group, as long as nothing is lost."""

    def __init__(
        self, saga: Saga, cluster: Cluster, client: Client, timers: Timers, stop: threading.Event
    ) -> None:
        self._saga = saga
        self._cluster = cluster
        self._timers = timers
        self._stop = stop
        self._events = client.topic(saga.events_topic)
        self._states = client.topic(saga.state_topic)
        self._reading: GroupReading = client.group_reading(
            f"saga.{saga.name}", topics=[saga.events_topic], start=Start.beginning()
        )
        self._machine = Machine(saga, lambda: time.time_ns() // 1_000_000, timers.schedule)
        self._partitions: dict[int, SagaPartition] = {}
        self.changes = 0

    def run(self) -> None:
        while not self._stop.is_set():
            for fetched in self._reading.poll():
                if not self._handle_all(fetched):
                    break

    def close(self) -> None:
        try:
            self._reading.close()  # otherwise the group would wait for this member
        except ClientError as error:
            log.debug("saga %s: the group could not be left: %s", self._saga.name, error)
        for partition in self._partitions.values():
            partition.close()

    def _handle_all(self, fetched: Fetched) -> bool:
        """False if it stopped in between: a round may take longer than the group waits for a member."""
        self._partition(fetched.partition)
        is_first = True
        for message in fetched.messages():
            if self._stop.is_set() or (self._reading.is_beat_due and not is_first):
                self._reading.give_back(fetched, message.offset)
                return False
            is_first = False
            partition = self._partitions.get(fetched.partition) or self._partition(fetched.partition)
            self._handle(partition, message)
        return True

    def _partition(self, index: int) -> SagaPartition:
        known = self._partitions.get(index)
        if known is not None:
            # It may have been another runner's meanwhile. An event that seems outdated by an old state would
            # be lost.
            known.check()
            return known
        made = SagaPartition(self._cluster, self._saga, self._events, self._states, index)
        self._partitions[index] = made
        return made

    def _handle(self, partition: SagaPartition, message: Message) -> None:
        if partition.is_done(message.offset):
            return
        event = decode(message.value)
        if event is None or message.key is None:
            log.warning(
                "saga %s: partition %d has no event at offset %d",
                self._saga.name,
                message.partition,
                message.offset,
            )
            return
        id = message.key.decode(errors="replace")
        if partition.is_finished(id):
            return
        state = partition.state(id)
        change = self._machine.handle(id, state, event)
        if change is None:
            return
        try:
            self._note(partition, message, change)
        except ClientError as error:
            if not is_about_messages(error):
                raise
            self._note_refused(message, state, error)

    def _note(self, partition: SagaPartition, message: Message, change: Change) -> None:
        for later in change.later:
            self._timers.schedule(change.state.id, later)
        partition.commit(message.offset, change)
        self.changes += 1

    def _note_refused(self, message: Message, state: SagaState | None, error: ClientError) -> None:
        """What a step has sent or returned, or what a saga was started with, cannot be written: that must not
        hold up other sagas."""
        self._partitions.pop(message.partition).close()
        if state is None:
            if not isinstance(error, BadArgument | MessageTooLarge):
                raise error  # a permission, for example, that somebody gives: the saga is to be started then
            log.error("saga %s: %r cannot be started: %s", self._saga.name, message.key, error)
            return
        log.error("saga %s: %s: step %s: %s", self._saga.name, state.id, state.step, error)
        reason = f"what step {state.step!r} has sent or returned is refused: {error}"
        refusal = error
        for change in self._machine.refused(state, reason):
            try:
                self._note(self._partition(message.partition), message, change)
                return
            except MessageTooLarge as too_large:
                self._partitions.pop(message.partition).close()
                refusal = too_large
        raise refusal
