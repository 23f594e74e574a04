"""A classic group with a clock to move by hand, and members that behave as real clients do."""

import itertools
from typing import Any

from posthouse.broker.groups.classic import ClassicGroup, ClassicRules
from posthouse.broker.groups.membership import (
    Joined,
    JoinRequest,
    Leaving,
    MemberClient,
    MemberIdentity,
    OfferedProtocol,
    Synced,
    SyncRequest,
)
from posthouse.model.errors import MemberIdRequired, PosthouseError
from posthouse.model.ids import InstanceId, MemberId

SESSION = 10.0
REBALANCE = 30.0


class Group:
    """The machine, its time, and members by name."""

    def __init__(self, *, initial: float = 0.0, max_size: int = 100) -> None:
        numbers = itertools.count(1)
        self.machine = ClassicGroup(
            ClassicRules(
                initial_seconds=initial,
                max_size=max_size,
                new_member_id=lambda prefix: MemberId(f"{prefix}-{next(numbers)}"),
                same_subscription=lambda _, old, new: old[:1] == new[:1],
            )
        )
        self.now = 0.0

    def pass_time(self, seconds: float) -> None:
        """As the event loop would: the machine is called when it asked to be, and not otherwise."""
        end = self.now + seconds
        while self.machine.wake_at <= end:
            self.now = max(self.now, self.machine.wake_at)
            before = self.machine.wake_at
            self.machine.tick(self.now)
            assert self.machine.wake_at > before, "it wants to be woken at a time that is over"
        self.now = end

    def member(self, name: str = "m", **options: Any) -> "SimulatedMember":
        return SimulatedMember(self, name, **options)

    def stable(self, *members: "SimulatedMember") -> None:
        """Join and sync all of them."""
        for member in members:
            member.join()
        self.pass_time(0.0)
        for member in members:
            member.follow()
        for member in members:
            member.follow()


class SimulatedMember:
    def __init__(
        self,
        group: Group,
        name: str,
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"t"),),
        protocol_type: str = "consumer",
        needs_id: bool = True,
        skips: bool = False,
        session: float = SESSION,
        rebalance: float = REBALANCE,
    ) -> None:
        self.group = group
        self.name = name
        self.instance = None if instance is None else InstanceId(instance)
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.needs_id = needs_id
        self.skips = skips
        self.session = session
        self.rebalance = rebalance
        self.id: MemberId | None = None
        self.joined: Joined | None = None
        self.synced: Synced | None = None
        self.error: PosthouseError | None = None
        self.waiting = False

    def ask(self) -> None:
        """One JoinGroup request."""
        self.joined = self.synced = self.error = None
        request = JoinRequest(
            member=self.id,
            instance=self.instance,
            client=MemberClient(id=self.name),
            protocol_type=self.protocol_type,
            protocols=tuple(OfferedProtocol(name=name, metadata=data) for name, data in self.protocols),
            session_seconds=self.session,
            rebalance_seconds=self.rebalance,
            must_know_its_id=self.needs_id,
            can_skip_assignment=self.skips,
        )
        self.waiting = True
        try:
            self.group.machine.join(request, self.group.now, self._on_joined)
        except PosthouseError as error:
            self._on_joined(error)

    def join(self) -> None:
        """Ask, and once more if an id was given out for that."""
        self.ask()
        if isinstance(self.error, MemberIdRequired):
            self.id = self.error.member_id
            self.ask()

    def _on_joined(self, result: Joined | PosthouseError) -> None:
        self.waiting = False
        if isinstance(result, PosthouseError):
            self.error = result
        else:
            self.joined, self.id = result, result.member

    def identity(self) -> MemberIdentity:
        return MemberIdentity(
            member=self.id or MemberId(""),
            generation=self.joined.generation if self.joined else -1,
            instance=self.instance,
        )

    @property
    def leads(self) -> bool:
        return self.joined is not None and self.joined.leader == self.id and not self.joined.skip_assignment

    def follow(self) -> None:
        """SyncGroup; a leader gives every member its own id as assignment."""
        if self.joined is None or self.waiting or self.synced is not None:
            return
        assignments = tuple((each.id, each.id.encode()) for each in self.joined.members) if self.leads else ()
        self.waiting = True
        try:
            self.group.machine.sync(
                SyncRequest(identity=self.identity(), assignments=assignments),
                self.group.now,
                self._on_synced,
            )
        except PosthouseError as error:
            self._on_synced(error)

    def _on_synced(self, result: Synced | PosthouseError) -> None:
        self.waiting = False
        if isinstance(result, PosthouseError):
            self.error, self.joined = result, None
        else:
            self.synced = result

    def heartbeat(self) -> PosthouseError | None:
        try:
            self.group.machine.heartbeat(self.identity(), self.group.now)
        except PosthouseError as error:
            self.error = error
            return error
        return None

    def leave(self) -> PosthouseError | None:
        member = None if self.instance else self.id
        [result] = self.group.machine.leave([Leaving(member=member, instance=self.instance)], self.group.now)
        return result

    @property
    def generation(self) -> int:
        return self.joined.generation if self.joined else -1
