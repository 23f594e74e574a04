"""Transactions: the open ones listed, a hanging one aborted, and that of a two-phase commit decided."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction
from posthouse.model.errors import InvalidTransaction
from posthouse.model.scopes import TRANSACTIONS as TRANSACTION_SCOPES
from posthouse.model.scopes import scope_of_transactional_id
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns
from posthouse.protocols.admin.problems import Problem

_MOST_PARTITIONS = 100


class TransactionsWanted(Paging, frozen=True, kw_only=True, forbid_unknown_fields=True):
    all: Annotated[bool, Meta(description="Also transactional ids that have nothing open.")] = False


class DecidedTransaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, description="Transactional id.")]
    producer_id: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="With producer_epoch: only if this is the open transaction."),
    ] = None
    producer_epoch: Annotated[
        Annotated[int, Meta(ge=0, le=32767)] | None, Meta(description="See producer_id.")
    ] = None


class TransactionPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="Transactional id.")]
    state: Annotated[str, Meta(description="empty, ongoing, prepared, committed or aborted.")]
    two_phase: Annotated[bool, Meta(description="Its owner decides, however long that takes.")]
    owner: Annotated[str | None, Meta(description="User who takes part in the two-phase commit.")]
    producer_id: Annotated[int, Meta(description="Of the records of the open transaction.")]
    producer_epoch: Annotated[int, Meta(description="Of the records of the open transaction.")]
    timeout_ms: Annotated[int | None, Meta(description="Null for a two-phase commit.")]
    started: Annotated[int | None, Meta(description="Milliseconds since 1970; null if none is open.")]
    age_ms: int | None
    partitions: Annotated[
        list[TransactionPartition], Meta(description=f"Written to; at most {_MOST_PARTITIONS} of them.")
    ]
    partitions_total: int


LISTED: Final[SpreadList[TransactionView]] = SpreadList(
    noun="transactional ids",
    scopes=TRANSACTION_SCOPES,
    path=("v1", "transactions"),
    answer=Page[TransactionView],
    page=lambda answer: answer,
    name=lambda transaction: transaction.id,
)
"""Those of other brokers."""


async def _list(context: CallContext, paging: TransactionsWanted, body: NoBody) -> Page[TransactionView]:
    return await LISTED.whole(context, paging, lambda: _page(context, paging))


async def _page(context: CallContext, paging: TransactionsWanted) -> Page[TransactionView]:
    """Of this broker."""
    found = context.broker.transactions.coordinated()
    if not paging.all:
        found = [each for each in found if each.work is not None]
    return await page_in_turns(
        [each.id for each in found],
        paging,
        lambda id: view_if_there(context, id),
        sees=lambda id: context.guard.sees(Kind.TRANSACTIONAL_ID, id),
    )


def view_if_there(context: CallContext, id: str) -> TransactionView | None:
    transaction = context.broker.transactions.ids.find(id)
    return None if transaction is None else _view(context, transaction)


def _view(context: CallContext, transaction: Transaction) -> TransactionView:
    work = transaction.work
    written = set() if work is None else work.partitions
    partitions = []
    for each in sorted(written, key=lambda each: (each.topic, each.index))[:_MOST_PARTITIONS]:
        topic = context.broker.topics.find_by_id(each.topic)
        if topic is not None and context.guard.sees(Kind.TOPIC, topic.name):
            partitions.append(TransactionPartition(topic=topic.name, partition=each.index))
    return TransactionView(
        id=transaction.id,
        state=transaction.state.name.lower(),
        two_phase=transaction.is_two_phase,
        owner=transaction.owner or None,
        producer_id=transaction.writer.producer_id,
        producer_epoch=transaction.writer.epoch,
        timeout_ms=None if transaction.is_two_phase else transaction.timeout_ms,
        started=None if work is None else work.started_ms,
        age_ms=None if work is None else max(context.broker.now_ms() - work.started_ms, 0),
        partitions=partitions,
        partitions_total=len(written),
    )


async def _abort(context: CallContext, parameters: DecidedTransaction, body: NoBody) -> TransactionView:
    return await _decided(context, parameters, commit=False)


async def _commit(context: CallContext, parameters: DecidedTransaction, body: NoBody) -> TransactionView:
    return await _decided(context, parameters, commit=True)


async def _decided(context: CallContext, parameters: DecidedTransaction, *, commit: bool) -> TransactionView:
    expected = _checked(context, parameters)
    id, transactions = parameters.id, context.broker.transactions
    action, resource = (
        "commit-transaction" if commit else "abort-transaction",
        f"{Kind.TRANSACTIONAL_ID}:{id}",
    )
    if transactions.get(id).work is not None:
        context.guard.note(action, resource)
    try:
        await (transactions.commit_open if commit else transactions.abort_open)(id, expected)
    except InvalidTransaction as error:
        context.guard.note_refused(action, resource, str(error))
        raise
    return _view(context, transactions.get(id))


def _checked(context: CallContext, parameters: DecidedTransaction) -> ProducerIdentity | None:
    """The transaction that is meant. Operators may decide, and users who may do two-phase commits."""
    guard, kind = context.guard, Kind.TRANSACTIONAL_ID
    own = (Operation.WRITE, Operation.TWO_PHASE_COMMIT)
    if not all(guard.may(each, kind, parameters.id) for each in own):
        context.require_cluster(Operation.ALTER)
    producer_id, epoch = parameters.producer_id, parameters.producer_epoch
    if producer_id is None and epoch is None:
        return None
    if producer_id is None or epoch is None:
        raise Problem(400, "producer_id and producer_epoch name a transaction only together")
    return ProducerIdentity(producer_id, epoch)


TRANSACTIONS: Final = (
    Endpoint(
        method="GET",
        path="/v1/transactions",
        summary="List open transactions",
        tag="transactions",
        handler=_list,
        parameters=TransactionsWanted,
        result=Page[TransactionView],
    ),
    Endpoint(
        method="POST",
        path="/v1/transactions/{id}/abort",
        summary="Abort the open transaction of a transactional id, and fence its producer",
        tag="transactions",
        handler=_abort,
        scope=lambda parameters: scope_of_transactional_id(parameters.id),
        parameters=DecidedTransaction,
        result=TransactionView,
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/transactions/{id}/commit",
        summary="Commit the transaction of a two-phase commit",
        tag="transactions",
        description="Look into the database of its owner first: it must have committed its part.",
        handler=_commit,
        scope=lambda parameters: scope_of_transactional_id(parameters.id),
        parameters=DecidedTransaction,
        result=TransactionView,
        problems=(404, 409),
    ),
)
