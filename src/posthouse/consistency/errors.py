"""Errors of outbox and inbox. Every message is one sentence that says what to do.

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
└── BrokerAhead            the broker has batches that the database does not know
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
