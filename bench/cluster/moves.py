"""How what one broker does for all comes to another broker: ways to make it move, those that are there."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bench.cluster.coordinators import coordinator_ports, until_done
from bench.cluster.steady import group_names
from bench.scale.asking import NotDone
from bench.scale.brokers import Broker
from posthouse.client.admin_client import AdminClient, part
from posthouse.client.errors import CallRefused, ClientError
from posthouse.model.scopes import COORDINATOR, Scope, scope_of_group

_LIMIT = 300.0
_LOOK_SECONDS = 0.02
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Members:
    """The brokers that run, by name."""

    brokers: dict[str, Broker]

    @property
    def ports(self) -> list[int]:
        return [each.kafka for each in self.brokers.values()]

    def coordinating(self, group: str) -> str:
        """The name of the broker that coordinates the group."""
        found: dict[str, int] = {}
        until_done(lambda: found.update(coordinator_ports(self.ports[0], [group])))
        [name] = [name for name, each in self.brokers.items() if each.kafka == found[group]]
        return name

    def other_than(self, name: str) -> str:
        return next(each for each in self.brokers if each != name)

    def ask(self, call: Callable[[AdminClient], Any]) -> Any:
        """Of any broker; a coordinator that moves leaves some calls without an answer. Raises CallRefused."""
        deadline = time.monotonic() + _LIMIT
        while True:
            for each in self.brokers.values():
                with suppress(ClientError), AdminClient(each.admin) as client:
                    try:
                        return call(client)
                    except CallRefused as error:
                        if error.status < 500:
                            raise _Refused(error) from None
            if time.monotonic() > deadline:
                raise NotDone("no broker answers operators")
            time.sleep(_LOOK_SECONDS)


class _Refused(Exception):
    """A call that will not succeed."""

    def __init__(self, error: CallRefused) -> None:
        super().__init__(str(error))
        self.status = error.status


@dataclass(frozen=True, slots=True)
class Move:
    name: str
    run: Callable[[Members], None]
    """Returns when it is done, as far as an operator can see that."""
    scope: Scope | None = None
    """It must be held, and operators must be able to move it; None: the move is always there."""

    def is_there(self, members: Members) -> bool:
        if self.scope is None:
            return True
        try:
            return _holder(members, self.scope) is not None
        except _Refused as error:
            if error.status == _NOT_FOUND:
                return False
            raise


_GROUP_SCOPE = scope_of_group(group_names()[0])


def move_group_scope(members: Members) -> None:
    _move(members, _GROUP_SCOPE)


def move_coordinator(members: Members) -> None:
    _move(members, COORDINATOR)


def _move(members: Members, scope: Scope) -> None:
    to = members.other_than(_holder(members, scope) or "")
    members.ask(lambda client: client.post(f"/v1/cluster/scopes/{part(str(scope))}/move", {"broker": to}))
    _until(lambda: _holder(members, scope) == to, f"{scope} does not move")


def drain(members: Members) -> None:
    name = members.coordinating(group_names()[0])
    members.ask(lambda client: client.post(f"/v1/cluster/brokers/{part(name)}/drain"))
    _until(lambda: _scopes_of(members, name) == 0, f"{name} is not drained")


def stop(members: Members) -> None:
    members.brokers.pop(members.coordinating(group_names()[0])).stop()


def kill(members: Members) -> None:
    members.brokers.pop(members.coordinating(group_names()[0])).kill()


def _holder(members: Members, scope: Scope) -> str | None:
    found = members.ask(lambda client: client.get("/v1/cluster"))
    names = {each["id"]: each["name"] for each in found["brokers"]}
    return next((names.get(each["holder"]) for each in found["scopes"] if each["name"] == str(scope)), None)


def _scopes_of(members: Members, broker: str) -> int:
    found = members.ask(lambda client: client.get("/v1/cluster"))
    return sum(int(each["scopes"]) for each in found["brokers"] if each["name"] == broker)


def _until(is_so: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + _LIMIT
    while not is_so():
        if time.monotonic() > deadline:
            raise NotDone(problem)
        time.sleep(_LOOK_SECONDS)


SEQUENCES: Sequence[Sequence[Move]] = (
    (
        Move("cluster move of a scope of groups", move_group_scope, _GROUP_SCOPE),
        Move("cluster move of the coordinator", move_coordinator, COORDINATOR),
        Move("stop of the coordinator of a group", stop),
        Move("kill -9 of the coordinator of a group", kill),
    ),
    (Move("cluster drain", drain, COORDINATOR),),
)
"""Each on a cluster of its own, one after the other: some take a broker away."""
