"""The registry of brokers: each sends a heartbeat every second, and hears of the others in the answer."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from posthouse.model.address import Address
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.model.scopes import Scope
from posthouse.storage.shared.database import Database, DatabaseAway
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.membership.link import Link
from posthouse.storage.shared.membership.loss_watch import LossWatch, Seen
from posthouse.storage.shared.migrations import newest_version

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
MOVING_SECONDS = 0.2
"""Between heartbeats while scopes move: the broker that takes one, and the clients, wait for them."""
LIVE_SECONDS = 5.0
_STATEMENT_SECONDS = 2.0
_REGISTRATION_SECONDS = 5.0
# A lost heartbeat does no harm, and one must not wait for a synchronous standby.
_SET_UP = "SET synchronous_commit = off"


class RegistrationRefused(InvalidConfig):
    """This broker cannot be one of the cluster."""


class NameTaken(RegistrationRefused):
    """Another process has registered under the name of this broker, or the database has forgotten its id."""


class NodeIdTaken(RegistrationRefused):
    """The node id that this broker is to have belongs to another one."""


class TablesTooNew(RegistrationRefused):
    """The tables were migrated to a version that this release cannot use."""


class HeartbeatFailed(PosthouseError):
    """By an error of the broker itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself."""

    name: str
    incarnation: UUID
    addresses: Mapping[str, Address]
    rack: str | None
    version: str
    node_id: int | None = None
    """That it is to have; None leaves it to the database."""


class BrokerRegistry:
    """Owned by the event loop."""

    def __init__(
        self,
        database: Database,
        registration: Registration,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        live_seconds: float = LIVE_SECONDS,
    ) -> None:
        self._database = database
        self._link = Link(database, "heartbeat", seconds=_STATEMENT_SECONDS, set_up=_SET_UP)
        self._registration = registration
        self._heartbeat_seconds = heartbeat_seconds
        self._live_seconds = live_seconds
        self._schema_version = newest_version()
        self._watch = LossWatch()
        self._acknowledged: Callable[[], int] | None = None
        """The commits of this broker's newest storage; None if it has seen a loss since."""
        self._is_stopped = False
        self._pause_seconds = heartbeat_seconds
        self._sooner = asyncio.Event()
        self._heard = asyncio.Event()
        """Of the next heartbeat."""
        self._beating: asyncio.Task[None] | None = None
        self._seen_at = 0.0
        self._confirmed_losses = 0
        """When this broker registered."""
        self.node_id = 0
        """Of this broker, once registered."""
        self.is_ready = False
        """Whether this broker can hold scopes. Others see it after the next heartbeat."""
        self.view = ClusterView()
        """What the last heartbeat has found."""
        self.failure: PosthouseError | None = None
        """Set when this broker must stop: another process has its name, or it cannot send heartbeats."""

    @property
    def loss(self) -> str | None:
        """A sentence if the database has lost commits, and no operator has confirmed that."""
        return self._watch.loss

    def lease_seconds_left(self) -> float:
        """How long the coordinator's lease lasts unless it is renewed, by what the last heartbeat found."""
        return self.view.lease_seconds_left - (asyncio.get_running_loop().time() - self._seen_at)

    def seconds_since_heard(self) -> float:
        """Since the database last answered a heartbeat."""
        return asyncio.get_running_loop().time() - self._seen_at

    @property
    def seen(self) -> Seen:
        """What the database must show at least: a broker that takes a lease or scopes says so."""
        self._note_acknowledged()
        return self._watch.seen

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        """`acknowledged` is the sum of the numbers of the last acknowledged commits of this broker, on all
        paths."""
        self._note_acknowledged()
        self._acknowledged = acknowledged

    def _note_acknowledged(self) -> None:
        if self._acknowledged is not None:
            self._watch.committed(self._acknowledged())

    def took_lease(self, lease: Lease) -> None:
        self.count_commits(lambda: lease.commits)

    def took_coordinator(self, epoch: int) -> None:
        """This broker has taken the scope coordinator, of this epoch."""
        self._watch.took(self._registration.incarnation, epoch)

    def lost_commits(self, loss: str) -> None:
        """The database has refused a lease or scopes because it has lost commits."""
        was_known = self._watch.loss is not None
        self._watch.know(loss)
        if not was_known:
            log.error("%s", self._watch.loss)

    async def register(self) -> int:
        """Returns the node id. Raises DatabaseAway and RegistrationRefused."""
        self.node_id = await self._register()
        await self.beat()
        self._confirmed_losses = self.view.confirmed_losses
        return self.node_id

    async def _register(self) -> int:
        mine = self._registration
        addresses = {name: str(address) for name, address in mine.addresses.items()}
        # Not on the connection of the heartbeats: a registration must not be lost.
        link = Link(self._database, "registration", seconds=_REGISTRATION_SECONDS)
        try:
            found = await link.ask(
                "SELECT posthouse.register_broker(%s, %s, %s, %s, %s, %s, %s)",
                [
                    mine.name,
                    mine.incarnation,
                    json.dumps(addresses),
                    mine.rack,
                    mine.version,
                    self._schema_version,
                    mine.node_id,
                ],
                doing="registering this broker",
            )
        finally:
            await link.close()
        self._check_needs(found.get("needs", 0))
        if "taken_by" in found:
            raise NodeIdTaken(
                f"node_id {mine.node_id} belongs to broker {found['taken_by']}; give {mine.name} another "
                "one, or none"
            )
        return int(found["id"])

    def _check_needs(self, needs: int) -> None:
        """Raises TablesTooNew."""
        if needs > self._schema_version:
            raise TablesTooNew(
                f"Posthouse's tables need releases that know version {needs} of them; this release knows "
                f"{self._schema_version}: install the release that the other brokers have"
            )

    async def beat(self) -> ClusterView:
        """One heartbeat. Raises DatabaseAway and RegistrationRefused."""
        asked_at = asyncio.get_running_loop().time()
        seen = self.seen
        found = await self._link.ask(
            "SELECT posthouse.heartbeat(%s, %s, %s, %s, %s)",
            [
                self._registration.incarnation,
                self._live_seconds,
                seen.holder,
                list(seen.commits_of),
                self.is_ready,
            ],
            doing="sending a heartbeat",
        )
        self._check_needs(found["needs"])
        self.view = _view(found)
        self._seen_at = asked_at
        # If this broker took over or noted commits meanwhile, the answer may be older than that.
        if self._watch.seen is seen:
            await self._watch_losses()
        if not found["is_registered"] and self.loss is None:
            await self._register_again()
        heard, self._heard = self._heard, asyncio.Event()
        heard.set()
        return self.view

    async def next_view(self) -> ClusterView:
        """What the next heartbeat finds."""
        await self._heard.wait()
        return self.view

    def hurry(self, is_moving: bool) -> None:
        """Send heartbeats more often while scopes move."""
        self._pause_seconds = self._heartbeat_seconds
        if is_moving and self._heartbeat_seconds > MOVING_SECONDS:
            self._pause_seconds = MOVING_SECONDS
            self._sooner.set()

    async def _watch_losses(self) -> None:
        loss_before = self._watch.loss
        is_confirmed = self.view.confirmed_losses > self._watch.seen.confirmed_losses
        unrecorded = self._watch.see(self.view)
        if self._watch.loss is not None and loss_before is None:
            log.error("%s", self._watch.loss)
        if self._watch.loss is not None or is_confirmed:
            self._acknowledged = None  # what the database has lost of it counts no more
        if unrecorded is not None:
            await self._link.ask(
                "SELECT posthouse.record_loss(%s, %s)",
                [unrecorded, self.view.confirmed_losses],
                doing="recording that commits were lost",
            )

    async def _register_again(self) -> None:
        """Raises RegistrationRefused, unless the database has lost the registration and the name is free."""
        name = self._registration.name
        known = await self._link.ask(
            "SELECT incarnation FROM posthouse.broker WHERE name = %s", [name], doing="looking for the name"
        )
        if known is not None and self.view.confirmed_losses == self._confirmed_losses:
            raise NameTaken(
                f"another broker has registered as {name}; every broker of a cluster needs a broker_name of "
                "its own"
            )
        log.warning("the database has lost the registration of broker %s; it registers again", name)
        node_id = await self._register()
        self._confirmed_losses = self.view.confirmed_losses
        if node_id != self.node_id:
            raise NameTaken(
                f"the database has lost the registration of broker {name}, which had id {self.node_id} and "
                f"gets {node_id}; start the broker again"
            )

    def start(self) -> None:
        """Send a heartbeat each second from now on."""
        self._beating = asyncio.get_running_loop().create_task(self._beat_on())

    async def _beat_on(self) -> None:
        was_away = False
        while not self._is_stopped:
            await self._pause()
            try:
                await self.beat()
            except DatabaseAway as error:
                if not was_away:  # one line for the first; the lease tells of the rest
                    log.warning("no heartbeat to the database: %s", error)
                was_away = True
            except RegistrationRefused as error:
                self.failure = error
                self._is_stopped = True
            except Exception as error:
                log.exception("no more heartbeats: an error of the broker itself")
                self.failure = HeartbeatFailed(f"the broker failed to send a heartbeat: {error!r}")
                self._is_stopped = True
            else:
                if was_away:
                    log.info("heartbeats reach the database again")
                was_away = False

    async def _pause(self) -> None:
        """Shorter from the moment that scopes move."""
        began = asyncio.get_running_loop().time()
        self._sooner.clear()
        while (left := began + self._pause_seconds - asyncio.get_running_loop().time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._sooner.wait()
            except TimeoutError:
                return
            self._sooner.clear()

    async def stop(self) -> None:
        """Stop the heartbeats, and be absent at once."""
        self._is_stopped = True
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        try:
            await self._link.ask(
                "UPDATE posthouse.broker SET seen_at = '-infinity' WHERE incarnation = %s RETURNING id",
                [self._registration.incarnation],
                doing="signing off",
            )
        except DatabaseAway as error:
            log.warning("this broker is listed for some seconds longer: %s", error)
        await self._link.close()


def _view(found: Mapping[str, Any]) -> ClusterView:
    holder = found["holder"]
    return ClusterView(
        brokers=tuple(map(_broker, found["brokers"])),
        holder_incarnation=None if holder is None else UUID(holder),
        epoch=found["epoch"],
        holders={Scope(name): UUID(holder) for name, holder in found["holders"].items()},
        wanted={Scope(name): broker for name, broker in found["wanted"].items()},
        lease_seconds_left=float(found["seconds_left"]),
        commits=int(found["commits"]),
        seen_commits=None if found["seen_commits"] is None else int(found["seen_commits"]),
        own_commits=int(found["own_commits"]),
        commits_of={UUID(incarnation): int(commits) for incarnation, commits in found["commits_of"].items()},
        timeline=found["timeline"],
        confirmed_losses=found["confirmed_losses"],
        loss=found["loss"],
    )


def _broker(found: Mapping[str, Any]) -> ClusterBroker:
    return ClusterBroker(
        id=found["id"],
        name=found["name"],
        incarnation=UUID(found["incarnation"]),
        addresses={name: Address.parse(text) for name, text in found["addresses"].items()},
        rack=found["rack"],
        version=found["version"],
        seconds_since_start=float(found["seconds_since_start"]),
        is_ready=found["is_ready"],
        lease_seconds_left=float(found["lease_seconds_left"]),
        is_draining=found["is_draining"],
    )
