"""The lease of a broker: it may serve while it has one, and it knows by its own clock until when.

Every process takes a lease of its own when it starts. Its time is that of the database: when `until` has
passed there, other brokers can take the scopes of this one, and that fences it: its commits are refused from
then on. The broker counts from the moment before it has sent the renewal, and stops some seconds early: its
own clock may be a little slow.

A lease whose time has passed is not yet lost. While PostgreSQL is away, no broker can be fenced: it stops
serving when the time is over, and goes on when a renewal finds that it still has the lease.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from posthouse.model.clock import Clock
from posthouse.model.scopes import SCOPES, Scope
from posthouse.storage.shared.database import CommitsLost, Database, DatabaseAway
from posthouse.storage.shared.membership.link import Link
from posthouse.storage.shared.membership.loss_watch import Seen

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.5
"""Pause between two attempts to renew while the database is away."""
_ATTEMPT_SECONDS = 6.0
"""More than an attempt takes: three seconds to connect, two for the statement, and the pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    seconds: float = 8.0
    """How long a lease lasts after it was taken or renewed."""
    renewal_seconds: float = 2.0
    """Pause between two renewals."""
    margin_seconds: float = 2.0
    """How much earlier than the database the broker regards its lease as over."""
    cut_off_seconds: float = 300.0
    """How long a broker that cannot reach the database still serves reads. It cannot know whether another
    broker has taken over, so its clients must not stay with it for ever."""


class Lease:
    """A lease that this broker has taken. Owned by the event loop; `keep` renews it, `release` ends it."""

    def __init__(
        self,
        link: Link,
        *,
        incarnation: UUID,
        epoch: int,
        taken_at: float,
        clock: Clock,
        times: LeaseTimes,
    ) -> None:
        """`taken_at` is the monotonic time before the lease was asked for."""
        self._link = link
        self.incarnation = incarnation
        self.epoch = epoch
        """One counter for all leases of the cluster."""
        self.scopes: dict[Scope, int] = {}
        """Those that this broker holds, with their epochs. `Scopes` changes it."""
        self._monotonic = clock.monotonic
        self._times = times
        self._deadline = taken_at + times.seconds - times.margin_seconds
        self._cut_off_until = -math.inf
        self._acknowledged: Callable[[], int] = int
        self._lost = asyncio.Event()
        self._is_gone = False
        """The database has said that it does not know the lease any more."""
        self.lost_because = ""
        """Once it is lost."""
        self.failure: Exception | None = None
        """An error of the broker itself, because of which the lease is not renewed any more."""
        self._keeping: asyncio.Task[None] | None = None

    @property
    def is_valid(self) -> bool:
        """Whether this broker may serve now. False as well when it could not renew the lease in time."""
        return self._monotonic() < self._deadline

    @property
    def is_cut_off(self) -> bool:
        """Whether the lease is over because PostgreSQL cannot be reached, as far as the broker can know.

        False if it has not just tried: a process that was stopped for a while does not know. False as well
        after `cut_off_seconds`.
        """
        now = self._monotonic()
        is_over = now >= self._deadline + self._times.cut_off_seconds
        return not self._lost.is_set() and now < self._cut_off_until and not is_over

    @property
    def is_lost(self) -> bool:
        """Whether this broker was fenced, or has released it."""
        return self._lost.is_set()

    def holds(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - self._monotonic())

    async def lost(self) -> None:
        """Returns when the lease is lost."""
        await self._lost.wait()

    def keep(self) -> None:
        """Start to renew it."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        try:
            await self._renew_on()
        except Exception as error:
            log.exception("the lease of epoch %d is not renewed any more", self.epoch)
            self.failure = error
            self._lose(f"the broker failed to renew it: {error!r}")

    async def _renew_on(self) -> None:
        pause = self._times.renewal_seconds
        was_valid, failures = True, 0
        while not self._lost.is_set():
            await asyncio.sleep(pause)
            pause = self._times.renewal_seconds
            try:
                await self.renew()
            except DatabaseAway as error:
                pause = min(pause, _AGAIN_SECONDS)
                failures += 1
                if failures == 1:
                    log.warning("the lease of epoch %d could not be renewed: %s", self.epoch, error)
                if was_valid and not self.is_valid:
                    log.error(
                        "the time of the lease of epoch %d is over; until the database is back, records can "
                        "only be read",
                        self.epoch,
                    )
            else:
                if failures and not self._lost.is_set():
                    log.info("the lease of epoch %d is renewed, after %d failures", self.epoch, failures)
                failures = 0
            was_valid = self.is_valid

    async def renew(self) -> bool:
        """Returns whether the lease is still held. Raises DatabaseAway."""
        if self._lost.is_set():
            return False
        asked_at = self._monotonic()
        try:
            is_held = await self._link.ask(
                "SELECT posthouse.renew_lease(%s, %s, %s)",
                [self.incarnation, self.epoch, self._times.seconds],
                doing="renewing the lease",
            )
        except DatabaseAway:
            self._cut_off_until = self._monotonic() + _ATTEMPT_SECONDS
            raise
        if is_held and not self._lost.is_set():
            self._deadline = asked_at + self._times.seconds - self._times.margin_seconds
        elif not is_held:
            self._is_gone = True
            self._lose("another broker has taken over")
        self._cut_off_until = -math.inf
        return bool(is_held)

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        self._acknowledged = acknowledged

    @property
    def commits(self) -> int:
        """What the database must have of this broker, also after the lease was lost."""
        return self._acknowledged()

    def fenced(self, why: str) -> None:
        """This broker must not write any more."""
        self._lose(why)

    def _lose(self, why: str) -> None:
        """The first reason stays."""
        self._deadline = -math.inf
        self.scopes.clear()
        if not self._lost.is_set():
            self.lost_because = why
            self._lost.set()

    async def release(self) -> None:
        """Let other brokers take its scopes at once. This one must have stopped serving."""
        self._lose("it was released")
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if not self._is_gone:
            try:
                await self._link.ask(
                    "SELECT posthouse.release_lease(%s, %s)",
                    [self.incarnation, self.epoch],
                    doing="releasing the lease",
                )
            except DatabaseAway as error:
                log.warning(
                    "the lease of epoch %d could not be released, and lasts up to %g s longer: %s",
                    *(self.epoch, self._times.seconds, error),
                )
        await self._link.close()


async def take_lease(
    database: Database,
    incarnation: UUID,
    *,
    clock: Clock,
    times: LeaseTimes | None = None,
    seen: Seen | None = None,
) -> Lease | None:
    """A new lease; an earlier one of this broker ends. None while an import or an export keeps all brokers
    out.

    Raises DatabaseAway; CommitsLost if the database shows less than `seen`, or has lost commits before.
    """
    times = times or LeaseTimes()
    return await _take(
        database,
        "SELECT posthouse.take_lease(%s, %s, %s)",
        [incarnation, times.seconds, (seen or Seen()).to_json()],
        clock=clock,
        times=times,
    )


async def take_exclusive_lease(
    database: Database, incarnation: UUID, *, clock: Clock, live_seconds: float
) -> Lease | None:
    """A lease with all scopes, beside which no broker can take one: for an export. None while brokers use the
    storage, or were seen within `live_seconds`. Raises as `take_lease`."""
    times = LeaseTimes()
    lease = await _take(
        database,
        "SELECT posthouse.begin_export(%s, %s, %s)",
        [incarnation, times.seconds, live_seconds],
        clock=clock,
        times=times,
    )
    if lease is not None:
        lease.scopes.update(dict.fromkeys(SCOPES, lease.epoch))
    return lease


async def _take(
    database: Database, statement: str, values: list[Any], *, clock: Clock, times: LeaseTimes
) -> Lease | None:
    """`values` begin with the incarnation of the broker."""
    link = Link(database, "lease", seconds=times.renewal_seconds)
    taken_at = clock.monotonic()
    try:
        found = await link.ask(statement, values, doing="taking a lease")
        if "loss" in found:
            raise CommitsLost(found["loss"])
    except BaseException:
        await link.close()
        raise
    if "epoch" not in found:
        await link.close()
        return None
    return Lease(
        link, incarnation=values[0], epoch=found["epoch"], taken_at=taken_at, clock=clock, times=times
    )
