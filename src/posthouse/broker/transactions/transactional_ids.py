"""The transactional ids by name, and their open transactions."""

from collections.abc import Iterable, Mapping

from posthouse.broker.transactions.transaction import Transaction, decode_transaction, split_offset_key
from posthouse.model.errors import UnknownTransaction
from posthouse.model.scopes import Scope, scope_of_transactional_id
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space


class TransactionalIds:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self._producers: set[int] = set()
        self._open: set[str] = set()
        self._names: dict[str, set[str]] = {}
        """Ids by the part before their last slash."""
        self._pending: dict[bytes, int] = {}
        """Number of open transactions that are about to change a committed offset, by its key."""

    def load(self, transactions: Mapping[bytes, bytes], offsets: Mapping[bytes, bytes]) -> list[Transaction]:
        """Values of `Space.TRANSACTIONS` and `Space.TRANSACTION_OFFSETS`; returns the open transactions."""
        loaded = [decode_transaction(key, value) for key, value in transactions.items()]
        for each in loaded:
            self.keep(each)
        for key, value in offsets.items():
            id, offset_key = split_offset_key(key)
            transaction = self._transactions.get(id)
            if transaction is not None and transaction.work is not None:
                transaction.work.offsets[offset_key] = Put(Space.OFFSETS, offset_key, value)
                self.add_pending([offset_key])
        return [each for each in loaded if each.work is not None]

    def unload(self, scope: Scope) -> None:
        """Forget those of the scope: another broker coordinates them."""
        for each in self.all():
            if scope_of_transactional_id(each.id) == scope:
                if each.work is not None:
                    self.remove_pending(each.work.offsets)
                self._open.discard(each.id)
                self.forget(each)

    def all(self) -> list[Transaction]:
        return list(self._transactions.values())

    def open(self) -> list[Transaction]:
        return [self._transactions[id] for id in self._open]

    def prepared_since(self) -> list[int]:
        """When the transactions began that wait for the owners of two-phase commits, in milliseconds."""
        works = [each.work for each in self.open()]
        return [work.started_ms for work in works if work is not None and work.prepared is not None]

    def under(self, name: str) -> list[Transaction]:
        """Those whose id is the name, a slash and no other slash."""
        return [self._transactions[id] for id in self._names.get(name, ())]

    def find(self, id: str) -> Transaction | None:
        return self._transactions.get(id)

    def get(self, id: str) -> Transaction:
        transaction = self._transactions.get(id)
        if transaction is None:
            raise UnknownTransaction(f"there is no transactional id {id!r}")
        return transaction

    def owns(self, producer_id: int) -> bool:
        """Whether this producer has a transactional id, and so must not write outside of transactions.

        Only the broker that coordinates knows, so the rule is weaker in others: there a producer without a
        login may write such a batch, which breaks its own sequence and no transaction. With logins its id
        belongs to no user, and `ProducerIds.belongs_to` refuses it everywhere.
        """
        return producer_id in self._producers

    def keep(self, transaction: Transaction) -> None:
        """Add a transaction, or replace the one with its id."""
        if transaction.id not in self._transactions:
            self._names.setdefault(_name(transaction.id), set()).add(transaction.id)
        self._transactions[transaction.id] = transaction
        self._producers |= {transaction.producer.producer_id, transaction.writer.producer_id}
        if transaction.work is None:
            self._open.discard(transaction.id)
        else:
            self._open.add(transaction.id)

    def forget(self, transaction: Transaction) -> None:
        del self._transactions[transaction.id]
        name = _name(transaction.id)
        self._names[name].discard(transaction.id)
        if not self._names[name]:
            del self._names[name]
        self._producers -= {transaction.producer.producer_id, transaction.writer.producer_id}

    def has_pending_offset(self, offset_key: bytes) -> bool:
        """Whether an open transaction may still change this committed offset."""
        return offset_key in self._pending

    def add_pending(self, offset_keys: Iterable[bytes]) -> None:
        for key in offset_keys:
            self._pending[key] = self._pending.get(key, 0) + 1

    def remove_pending(self, offset_keys: Iterable[bytes]) -> None:
        for key in offset_keys:
            left = self._pending[key] - 1
            if left:
                self._pending[key] = left
            else:
                del self._pending[key]


def _name(id: str) -> str:
    return id.rpartition("/")[0]
