"""What events tell of: summaries of all objects of a kind, without numbers that change by themselves."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.names import topic_name
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.events import SAMPLE_SECONDS, EventSource, Sample
from posthouse.protocols.admin.group_views import GroupViews
from posthouse.protocols.admin.handlers import (
    acls,
    bindings,
    brokers,
    connections,
    exchanges,
    groups,
    overview,
    queues,
    quotas,
    topics,
    transactions,
    users,
)
from posthouse.protocols.admin.handlers.queues import Counters, State, state_of
from posthouse.protocols.admin.paging import Paging
from posthouse.protocols.admin.turns import in_turns

DECLARED_SECONDS: Final = 5.0
"""Between two samples of what people declare: it changes rarely, and there may be very much of it."""


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    state: State
    ready: int
    unacked: int
    consumers: int
    counters: Counters


class ConnectionState(msgspec.Struct, frozen=True, kw_only=True):
    peer: str
    listener: str
    protocol: str
    user: str | None
    client: str
    namespace: str | None
    paused: bool
    channels: int


class TransactionSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str
    producer_id: int
    producer_epoch: int
    started: int | None
    partitions: int


class _Source:
    """Asks the broker with a context that sees everything; what a listener sees is decided later."""

    seconds = SAMPLE_SECONDS

    def __init__(self, context: CallContext) -> None:
        self._context = context


class _OfCluster(_Source):
    operation = Operation.DESCRIBE
    """That a client needs on the cluster."""

    def sees(self, guard: Guard, summary: Any) -> bool:
        return guard.may(self.operation, Kind.CLUSTER, CLUSTER)


class OverviewSource(_OfCluster):
    async def sample(self) -> Sample:
        return {"overview": await overview.overview(self._context)}


class ConnectionSource(_OfCluster):
    async def sample(self) -> Sample:
        parts = connections.LISTED.parts(self._context)
        found: dict[str, msgspec.Struct] = {}
        async for served, connection in in_turns(list(self._context.listeners.clients())):
            view = connections.view(served.name, connection.info, channels=0)
            found[view.peer] = _connection_state(view)
        async for each in connections.LISTED.all(parts, Paging()):
            found[each.peer] = _connection_state(each)
        return found


class TopicSource(_Source):
    def sees(self, guard: Guard, summary: Any) -> bool:
        return guard.sees(Kind.TOPIC, summary.name)

    async def sample(self) -> Sample:
        found: dict[str, msgspec.Struct] = {}
        async for name in in_turns([topic.name for topic in self._context.broker.topics], steps=1):
            topic = self._context.broker.topics.find(name)
            summary = None if topic is None else await topics.summary(self._context, topic)
            if summary is not None:
                found[name] = summary
        return found


class GroupSource(_Source):
    def sees(self, guard: Guard, summary: Any) -> bool:
        return guard.sees(Kind.GROUP, summary.name)

    async def sample(self) -> Sample:
        parts = groups.LISTED.parts(self._context)
        await self._context.broker.groups.offsets.follow()
        views = GroupViews(self._context.broker)
        found: dict[str, msgspec.Struct] = {}
        async for name in in_turns(views.names(), steps=1):
            summary = await groups.summary(views, name)
            if summary is not None:
                found[name] = summary
        async for each in groups.LISTED.all(parts, Paging()):
            found[each.name] = each
        return found


class QueueSource(_Source):
    """Names are those of the path of a queue: %2F/jobs."""

    def sees(self, guard: Guard, summary: Any) -> bool:
        return guard.sees(Kind.TOPIC, topic_name(summary.namespace, summary.name))

    async def sample(self) -> Sample:
        parts = queues.LISTED.parts(self._context)
        found: dict[str, msgspec.Struct] = {}
        for namespace in list(self._context.broker.namespaces):
            async for queue in in_turns(list(namespace.queues.values())):
                found[_path(namespace.name, queue.name)] = _queue_state(queue)
        async for each in queues.LISTED.all(parts, queues.QueuePaging(brief=True)):
            found[_path(each.namespace, each.name)] = msgspec.convert(each, QueueState, from_attributes=True)
        return found


class TransactionSource(_Source):
    def sees(self, guard: Guard, summary: Any) -> bool:
        return guard.sees(Kind.TRANSACTIONAL_ID, summary.id)

    async def sample(self) -> Sample:
        parts = transactions.LISTED.parts(self._context)
        found: dict[str, msgspec.Struct] = {
            each.id: TransactionSummary(
                id=each.id,
                state=each.state.name.lower(),
                producer_id=each.writer.producer_id,
                producer_epoch=each.writer.epoch,
                started=None if each.work is None else each.work.started_ms,
                partitions=0 if each.work is None else len(each.work.partitions),
            )
            async for each in in_turns(self._context.broker.transactions.ids.open())
        }
        async for other in transactions.LISTED.all(parts, transactions.TransactionsWanted()):
            found[other.id] = TransactionSummary(
                id=other.id,
                state=other.state,
                producer_id=other.producer_id,
                producer_epoch=other.producer_epoch,
                started=other.started,
                partitions=other.partitions_total,
            )
        return found


class ExchangeSource(_Source):
    """Names are those of the path of an exchange: %2F/news."""

    seconds = DECLARED_SECONDS

    def sees(self, guard: Guard, summary: Any) -> bool:
        return not summary.name or guard.sees(Kind.TOPIC, topic_name(summary.namespace, summary.name))

    async def sample(self) -> Sample:
        parts = exchanges.LISTED.parts(self._context)
        found: dict[str, msgspec.Struct] = {}
        for namespace in list(self._context.broker.namespaces):
            async for exchange in in_turns(namespace.router.exchanges()):
                found[_path(namespace.name, exchange.name)] = exchanges.view(namespace.name, exchange)
        async for each in exchanges.LISTED.all(parts, exchanges.ExchangePaging()):
            found[_path(each.namespace, each.name)] = each
        return found


class BindingSource(_Source):
    """Names are their ids."""

    seconds = DECLARED_SECONDS

    def sees(self, guard: Guard, summary: Any) -> bool:
        names = (summary.source, summary.destination)
        return any(guard.sees(Kind.TOPIC, topic_name(summary.namespace, name)) for name in names)

    async def sample(self) -> Sample:
        parts = bindings.LISTED.parts(self._context)
        found: dict[str, msgspec.Struct] = {}
        for namespace in list(self._context.broker.namespaces):
            async for binding in in_turns(namespace.router.bindings()):
                view = bindings.view(namespace.name, binding)
                found[view.id] = view
        async for each in bindings.LISTED.all(parts, bindings.BindingPaging()):
            found[each.id] = each
        return found


class UserSource(_OfCluster):
    seconds = DECLARED_SECONDS

    async def sample(self) -> Sample:
        known = list(self._context.broker.access.users)
        return {user.name: users.view(self._context, user) async for user in in_turns(known)}


class AclSource(_OfCluster):
    seconds = DECLARED_SECONDS

    async def sample(self) -> Sample:
        known = list(self._context.broker.access.acls)
        return {acl.key().decode(): acls.AclView.of(acl) async for acl in in_turns(known)}


class QuotaSource(_OfCluster):
    seconds = DECLARED_SECONDS
    operation = Operation.DESCRIBE_CONFIGS

    async def sample(self) -> Sample:
        known = list(self._context.broker.access.quotas)
        return {
            entity.key().decode(): quotas.view(entity, dict(rates)) async for entity, rates in in_turns(known)
        }


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    role: brokers.Role
    version: str


class BrokerSource(_OfCluster):
    async def sample(self) -> Sample:
        found = brokers.described(self._context).brokers
        return {
            str(each.id): BrokerState(id=each.id, name=each.name, role=each.role, version=each.version)
            for each in found
        }


def _path(namespace: str, name: str) -> str:
    return f"{quote(namespace, safe='')}/{quote(name, safe='')}"


def _connection_state(view: connections.ConnectionView) -> ConnectionState:
    return ConnectionState(
        peer=view.peer,
        listener=view.listener,
        protocol=view.protocol,
        user=view.user,
        client=view.client,
        namespace=view.namespace,
        paused=view.paused,
        channels=view.channels_total,
    )


def _queue_state(queue: LogQueue) -> QueueState:
    ready, unacked = queue.lengths
    return QueueState(
        namespace=queue.namespace,
        name=queue.name,
        state=state_of(queue),
        ready=ready,
        unacked=unacked,
        consumers=queue.consumer_count,
        counters=Counters(**{name: getattr(queue.counters, name) for name in Counters.__struct_fields__}),
    )


def sources(context: CallContext) -> Mapping[str, EventSource]:
    return {
        "overview": OverviewSource(context),
        "topics": TopicSource(context),
        "groups": GroupSource(context),
        "queues": QueueSource(context),
        "connections": ConnectionSource(context),
        "transactions": TransactionSource(context),
        "exchanges": ExchangeSource(context),
        "bindings": BindingSource(context),
        "users": UserSource(context),
        "acls": AclSource(context),
        "quotas": QuotaSource(context),
        "brokers": BrokerSource(context),
    }
