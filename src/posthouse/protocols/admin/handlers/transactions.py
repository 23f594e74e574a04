"""Transactions: the open ones listed, and a hanging one aborted."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.transactions.transaction import Transaction
from posthouse.model.scopes import TRANSACTIONS as TRANSACTION_SCOPES
from posthouse.model.scopes import scope_of_transactional_id
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns

_MOST_PARTITIONS = 100


class TransactionsWanted(Paging, frozen=True, kw_only=True, forbid_unknown_fields=True):
    all: Annotated[bool, Meta(description="Also transactional ids that have nothing open.")] = False


class OfTransaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, description="Transactional id.")]


class TransactionPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="Transactional id.")]
    state: Annotated[str, Meta(description="empty, ongoing, committed or aborted.")]
    producer_id: int
    producer_epoch: int
    timeout_ms: int
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
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.epoch,
        timeout_ms=transaction.timeout_ms,
        started=None if work is None else work.started_ms,
        age_ms=None if work is None else max(context.broker.now_ms() - work.started_ms, 0),
        partitions=partitions,
        partitions_total=len(written),
    )


async def _abort(context: CallContext, parameters: OfTransaction, body: NoBody) -> TransactionView:
    context.require_cluster(Operation.ALTER)
    transactions = context.broker.transactions
    if transactions.get(parameters.id).work is not None:
        context.guard.note("abort-transaction", f"{Kind.TRANSACTIONAL_ID}:{parameters.id}")
    await transactions.abort_open(parameters.id)
    return _view(context, transactions.get(parameters.id))


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
        parameters=OfTransaction,
        result=TransactionView,
        problems=(404, 409),
    ),
)
