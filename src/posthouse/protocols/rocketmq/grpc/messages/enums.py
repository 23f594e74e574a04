"""Enums that are open, as in proto3: a number without a name stays a plain int in the decoded message."""

from enum import IntEnum


class TransactionResolution(IntEnum):
    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


class TransactionSource(IntEnum):
    SOURCE_UNSPECIFIED = 0
    SOURCE_CLIENT = 1
    SOURCE_SERVER_CHECK = 2


class Permission(IntEnum):
    PERMISSION_UNSPECIFIED = 0
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4


class FilterType(IntEnum):
    FILTER_TYPE_UNSPECIFIED = 0
    TAG = 1
    SQL = 2


class AddressScheme(IntEnum):
    ADDRESS_SCHEME_UNSPECIFIED = 0
    IPv4 = 1
    IPv6 = 2
    DOMAIN_NAME = 3


class MessageType(IntEnum):
    MESSAGE_TYPE_UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


class DigestType(IntEnum):
    DIGEST_TYPE_UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3


class ClientType(IntEnum):
    CLIENT_TYPE_UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


class Encoding(IntEnum):
    ENCODING_UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2


class Language(IntEnum):
    LANGUAGE_UNSPECIFIED = 0
    JAVA = 1
    CPP = 2
    DOT_NET = 3
    GOLANG = 4
    RUST = 5
    PYTHON = 6
    PHP = 7
    NODE_JS = 8
    RUBY = 9
    OBJECTIVE_C = 10
    DART = 11
    KOTLIN = 12


class LiteSubscriptionAction(IntEnum):
    PARTIAL_ADD = 0
    PARTIAL_REMOVE = 1
    COMPLETE_ADD = 2
    COMPLETE_REMOVE = 3


class QueryOffsetPolicy(IntEnum):
    BEGINNING = 0
    END = 1
    TIMESTAMP = 2


class OffsetOptionPolicy(IntEnum):
    """`OffsetOption.Policy`."""

    LAST = 0
    MIN = 1
    MAX = 2
