"""Errors of this package. Every message is one sentence that says what to do.

ConsistencyError
├── BadMessage             what is to be published, or its id, cannot be
├── UnknownConnection      no session or connection of a library that is known here
├── NoTransaction          the connection commits every statement by itself
├── DatabaseLost           the connection broke, or a statement failed: to be tried again on a new one
│   └── Unreachable        no connection could be opened
├── BadDatabase            the URL, or what is there
│   └── NoTables           'posthouse outbox init' was not run there
├── LeaseLost              another relay has taken the shard
├── BrokerAhead            the broker has batches that the database does not know
├── DecidedOtherwise       a half message was decided by a check, and not as its transaction was
├── BadSaga                steps, names or topics of a saga that cannot be
└── Superseded             another runner has the sagas of a partition
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


class LeaseLost(ConsistencyError):
    pass


class BrokerAhead(ConsistencyError):
    pass


class DecidedOtherwise(ConsistencyError):
    pass


class BadSaga(ConsistencyError):
    pass


class Superseded(ConsistencyError):
    pass
