"""How what one broker does for all comes to another broker: ways to make it move."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cluster.coordinators import coordinator_ports, until_done
from bench.cluster.steady import Ports, group_names, transactional_ids
from bench.scale.asking import NotDone
from bench.scale.brokers import Broker
from posthouse.client.admin_client import AdminClient, part
from posthouse.client.errors import CallRefused, ClientError
from posthouse.model.scopes import (
    COORDINATOR,
    DEFAULT_NAMESPACE,
    Scope,
    scope_of_group,
    scope_of_namespace,
    scope_of_transactional_id,
)

_LIMIT = 300.0
_LOOK_SECONDS = 0.02
_SETTLED_SECONDS = 8.0
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Members:
    """The brokers that run, by name."""

    brokers: dict[str, Broker]

    @property
    def ports(self) -> Ports:
        brokers = self.brokers.values()
        return Ports(kafka=[each.kafka for each in brokers], amqp=[each.amqp for each in brokers])

    def coordinating(self, group: str) -> str:
        """The name of the broker that coordinates the group."""
        found: dict[str, int] = {}
        until_done(lambda: found.update(coordinator_ports(self.ports.kafka[0], [group])))
        [name] = [name for name, each in self.brokers.items() if each.kafka == found[group]]
        return name

    def other_than(self, name: str | None) -> str:
        return next(each for each in self.brokers if each != name)

    def ask(self, call: Callable[[AdminClient], Any]) -> Any:
        """Of any broker; a coordinator that moves leaves some calls without an answer. Raises CallRefused."""
        deadline = time.monotonic() + _LIMIT
        while True:
            for each in self.brokers.values():
                try:
                    with AdminClient(each.admin) as client:
                        return call(client)
                except ClientError as error:
                    if isinstance(error, CallRefused) and error.status < _SERVER_ERROR:
                        raise
                    problem = error
            if time.monotonic() > deadline:
                raise NotDone(f"no broker answers operators: {problem}")
            time.sleep(_LOOK_SECONDS)

    def scopes(self) -> dict[str, str | None]:
        """The name of the broker that holds each."""
        found = self.ask(lambda client: client.get("/v1/cluster"))
        names = {each["id"]: each["name"] for each in found["brokers"]}
        return {each["name"]: names.get(each["holder"]) for each in found["scopes"]}


def wait_until_settled(members: Members) -> None:
    """Until no scope has moved for a while: brokers that have just started get their share one by one."""
    before: dict[str, str | None] = {}
    settled_at = math.inf
    while time.monotonic() < settled_at:
        found = members.scopes()
        if found != before:
            before, settled_at = found, time.monotonic() + _SETTLED_SECONDS
        time.sleep(_LOOK_SECONDS)


def move_group_scope(members: Members) -> None:
    _move(members, scope_of_group(group_names()[0]))


def move_namespace_scope(members: Members) -> None:
    _move(members, scope_of_namespace(DEFAULT_NAMESPACE))


def move_transaction_scope(members: Members) -> None:
    _move(members, scope_of_transactional_id(transactional_ids()[0]))


def move_coordinator(members: Members) -> None:
    _move(members, COORDINATOR)


def _move(members: Members, scope: Scope) -> None:
    move_to(members, scope, members.other_than(members.scopes()[str(scope)]))


def move_to(members: Members, scope: Scope, to: str) -> None:
    """It stays there."""
    members.ask(lambda client: client.post(f"/v1/cluster/scopes/{part(str(scope))}/move", {"broker": to}))
    _until(lambda: members.scopes()[str(scope)] == to, f"{scope} does not move")


def drain(members: Members) -> None:
    name = members.coordinating(group_names()[0])
    members.ask(lambda client: client.post(f"/v1/cluster/brokers/{part(name)}/drain"))
    _until(lambda: name not in members.scopes().values(), f"{name} is not drained")


def stop(members: Members) -> None:
    members.brokers.pop(members.coordinating(group_names()[0])).stop()


def kill(members: Members) -> None:
    members.brokers.pop(members.coordinating(group_names()[0])).kill()


def _until(is_so: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + _LIMIT
    while not is_so():
        if time.monotonic() > deadline:
            raise NotDone(problem)
        time.sleep(_LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class Move:
    name: str
    run: Callable[[Members], None]
    """Returns when it is done, as far as an operator can see that."""


SEQUENCES: Sequence[Sequence[Move]] = (
    (
        Move("cluster move of a scope of groups", move_group_scope),
        Move("cluster move of a scope of namespaces", move_namespace_scope),
        Move("cluster move of a scope of transactional ids", move_transaction_scope),
        Move("cluster move of the coordinator", move_coordinator),
        Move("stop of the coordinator of a group", stop),
        Move("kill -9 of the coordinator of a group", kill),
    ),
    (Move("cluster drain", drain),),
)
"""Each on a cluster of its own, one after the other: some take a broker away."""
