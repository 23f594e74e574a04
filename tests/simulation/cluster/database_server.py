"""The simulated PostgreSQL: sessions, transactions and the faults of a server. The tables are in `tables`.

A statement takes effect at one moment, some time after it has arrived. One in a transaction is tried on a
copy of the tables and done again on the tables themselves when the transaction is committed, with what has
changed in between: where that is not allowed any more, the commit fails, as if the transaction had come
later. As in PostgreSQL's READ COMMITTED, a statement sees what others have committed since the one before it;
only a snapshot does not. The lock of the last change is the only one that is kept until a transaction ends.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import psycopg

from tests.simulation.cluster.links import DATABASE, Links, Stream
from tests.simulation.cluster.statements import SNAPSHOT, STATEMENTS, Row, needs_last_change
from tests.simulation.cluster.tables import Tables
from tests.simulation.world import NS, Entry, Process, World

COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"
_LOCK_SECONDS = 2.0
_IDLE_SECONDS = 5.0
"""A transaction whose client says nothing is rolled back."""

Reply = Callable[[list[Row] | psycopg.Error], None]


class Session:
    """What the server knows of one connection."""

    def __init__(self, server: "DatabaseServer", loop: Any, out: Stream, lost: Callable[[], None]) -> None:
        """`out` is how the client sends. `lost` is told in the process of the client."""
        self.server = server
        self.loop = loop
        self.out = out
        self._lost = lost
        self.is_open = True
        self.back = Stream(server.links.way(DATABASE, loop.host))
        self._requests: deque[tuple[str, Any, bool, Reply]] = deque()
        self._is_busy = False
        self.transaction: Transaction | None = None
        self._statements = 0

    def receive(self, statement: str, values: Any, in_transaction: bool, reply: Reply) -> None:
        self._requests.append((statement, values, in_transaction, reply))
        self._next()

    def _next(self) -> None:
        if self._requests and not self._is_busy and self.is_open:
            self._is_busy = True
            self.server.later(self._begin)

    def _begin(self) -> None:
        if not self.is_open:
            return
        statement, values, _, _ = self._requests[0]
        if needs_last_change(statement, values) and not self.server.lock_last_change(self):
            return  # `go_on` or `give_up` comes
        self.go_on()

    def go_on(self) -> None:
        statement, values, in_transaction, reply = self._requests.popleft()
        self._is_busy = False
        self._statements += 1
        try:
            answer: list[Row] | psycopg.Error = self._done(statement, values, in_transaction)
        except psycopg.Error as error:
            answer = error
            if self.transaction is not None:
                self.transaction.has_failed = True
        self.server.world.note(f"database: {statement[:50]} of {self.loop.host}: {_short(answer)}")
        if self.transaction is None:
            self.server.unlock_last_change(self)
        else:
            self._watch_idle(self._statements)
        if self.server.loses_answer(self, statement):
            self.break_off()
            return
        self.back.send(Entry(self.loop.process, self.loop, reply, (answer,)))
        self._next()

    def give_up(self) -> None:
        """The lock was not to be had in time."""
        reply = self._requests.popleft()[3]
        self._is_busy = False
        if self.transaction is not None:
            self.transaction.has_failed = True
        error = psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
        self.back.send(Entry(self.loop.process, self.loop, reply, (error,)))
        self._next()

    def _done(self, statement: str, values: Any, in_transaction: bool) -> list[Row]:
        if statement in (COMMIT, ROLLBACK):
            transaction, self.transaction = self.transaction, None
            if transaction is not None and statement == COMMIT and not transaction.has_failed:
                for each in transaction.written:
                    self.server.execute(*each)
            return []
        if not in_transaction:
            return self.server.execute(statement, values)
        if self.transaction is None:
            self.transaction = Transaction(self.server)
        return self.transaction.run(statement, values)

    def _watch_idle(self, statements: int) -> None:
        def look() -> None:
            if self.is_open and self.transaction is not None and self._statements == statements:
                self.break_off()

        self.server.later(look, _IDLE_SECONDS)

    def end(self) -> None:
        """The client has closed it."""
        if self.is_open:
            self.is_open = False
            self.transaction = None
            self.server.ended(self)

    def break_off(self) -> None:
        """The server closes it, and the client hears of that."""
        if self.is_open:
            self.end()
            self.back.send(Entry(self.loop.process, self.loop, self._lost))


class Transaction:
    def __init__(self, server: "DatabaseServer") -> None:
        self._server = server
        self._seen = server.changes
        self._tables = server.now().copy()
        self._is_snapshot = False
        self.written: list[tuple[str, Any]] = []
        """To be done when it is committed."""
        self.has_failed = False

    def run(self, statement: str, values: Any) -> list[Row]:
        if self.has_failed:
            raise psycopg.errors.InFailedSqlTransaction("current transaction is aborted")
        self._is_snapshot = self._is_snapshot or statement == SNAPSHOT
        if self._is_snapshot:
            return STATEMENTS[statement](self._tables, values)
        if self._seen != self._server.changes:
            self._seen = self._server.changes
            self._tables = self._server.now().copy()
            for each, its_values in self.written:
                STATEMENTS[each](self._tables, its_values)
        self.written.append((statement, values))
        return STATEMENTS[statement](self._tables, values)


class DatabaseServer:
    def __init__(self, world: World, links: Links) -> None:
        self.world = world
        self.links = links
        self.tables = Tables()
        self.process = Process(world, DATABASE)
        self.is_up = True
        self.slowest_ns = 1_000_000
        self.answers_to_lose = 0
        """The connection breaks after so many of the next commits, before their answers are sent."""
        self.observer: Callable[[str, Any, list[Row] | psycopg.Error], None] | None = None
        """Is told of every statement that counts, and what came of it."""
        self._random = world.random("database")
        self.changes = 0
        """How many statements have counted."""
        self._sessions: dict[Session, None] = {}
        self._change_holder: Session | None = None
        self._waiting: deque[Session] = deque()

    def execute(self, statement: str, values: Any) -> list[Row]:
        """It counts. Raises psycopg.Error."""
        outcome: list[Row] | psycopg.Error
        self.changes += 1
        try:
            outcome = STATEMENTS[statement](self.now(), values)
        except psycopg.Error as error:
            outcome = error
        if self.observer is not None:
            self.observer(statement, values, outcome)
        if isinstance(outcome, psycopg.Error):
            raise outcome
        return outcome

    def now(self) -> Tables:
        self.tables.now = self.world.now_ns
        return self.tables

    def later(self, work: Callable[[], None], seconds: float | None = None) -> None:
        """In the process of the server, which may be stopped meanwhile."""
        delay = int(self.slowest_ns * self._random.random() ** 3) if seconds is None else int(seconds * NS)
        self.world.at(self.world.now_ns + delay, Entry(self.process, None, work))

    def connect(
        self, loop: Any, out: Stream, lost: Callable[[], None], answer: Callable[[Session | None], None]
    ) -> None:
        """Called where the request of a client has arrived."""
        made = Session(self, loop, out, lost) if self.is_up else None
        if made is not None:
            self._sessions[made] = None
        back = Stream(self.links.way(DATABASE, loop.host)) if made is None else made.back
        back.send(Entry(loop.process, loop, answer, (made,)))

    def lock_last_change(self, session: Session) -> bool:
        if self._change_holder in (None, session):
            self._change_holder = session
            return True
        self._waiting.append(session)

        def give_up() -> None:
            if session in self._waiting:
                self._waiting.remove(session)
                session.give_up()

        self.later(give_up, _LOCK_SECONDS)
        return False

    def unlock_last_change(self, session: Session) -> None:
        if self._change_holder is session:
            self._change_holder = None
            if self._waiting:
                following = self._waiting.popleft()
                self._change_holder = following
                self.later(following.go_on, 0.0)

    def loses_answer(self, session: Session, statement: str) -> bool:
        if self.answers_to_lose and ("commit_group" in statement or statement == COMMIT):
            self.answers_to_lose -= 1
            self.world.note("database: the answer is lost")
            return True
        return False

    def ended(self, session: Session) -> None:
        self._sessions.pop(session, None)
        if session in self._waiting:
            self._waiting.remove(session)
        self.unlock_last_change(session)

    def crash(self) -> None:
        """All connections break; what has counted stays."""
        self.is_up = False
        for session in list(self._sessions):
            session.break_off()

    def restart(self) -> None:
        self.is_up = True

    def break_connections(self, host: str) -> None:
        for session in [each for each in self._sessions if each.loop.host == host]:
            session.break_off()

    def died(self, loop: Any) -> None:
        """A client is gone: its system closes its connections, behind what was sent."""
        for session in [each for each in self._sessions if each.loop is loop]:
            session.out.send(Entry(self.process, None, session.end))


def _short(answer: list[Row] | psycopg.Error) -> str:
    if isinstance(answer, psycopg.Error):
        return f"{answer.sqlstate} {answer}"
    return f"{len(answer)} rows"
