"""Errors of this package. Every message is one sentence that says what to do.

ConsistencyError
├── BadMessage             what is to be published, or its id, cannot be
├── UnknownConnection      no session or connection of a library that is known here
├── NoTransaction          the connection commits every statement by itself
├── DatabaseLost           the connection broke, or a statement failed: to be tried again on a new one
│   └── Unreachable        no connection could be opened
├── BadDatabase            the URL, or what is there
│   └── NoTables           'posthouse outbox init' was not run there
├── BadMigration           what is asked for cannot be a migration
├── LeaseLost              another relay has taken the shard
├── BrokerAhead            the broker has batches that the database does not know
├── TransactionInDoubt     of a two-phase commit: `recover` will tell, or finish it
├── DecidedOtherwise       by an operator or a check, and not as the transaction of the database was
├── BadSaga                steps, names or topics of a saga that cannot be
└── Superseded             another process has taken the transactional id, or the sagas of a partition
"""


class ConsistencyError(Exception):
    """Base of all errors that this package raises on purpose."""


class BadMessage(ConsistencyError):
    pass


class UnknownConnection(ConsistencyError):
    pass


class NoTransaction(ConsistencyError):
    pass


class DatabaseLost(ConsistencyError):
    pass


class Unreachable(DatabaseLost):
    pass


class BadDatabase(ConsistencyError):
    pass


class NoTables(BadDatabase):
    pass


class BadMigration(ConsistencyError):
    pass


class LeaseLost(ConsistencyError):
    pass


class BrokerAhead(ConsistencyError):
    pass


class Superseded(ConsistencyError):
    pass


class TransactionInDoubt(ConsistencyError):
    pass


class DecidedOtherwise(ConsistencyError):
    pass


class BadSaga(ConsistencyError):
    pass
