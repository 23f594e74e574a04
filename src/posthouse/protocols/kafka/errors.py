"""Kafka's error codes, and the one table from the broker's errors to them."""

import asyncio
from collections.abc import Callable
from enum import IntEnum

from posthouse.model import errors
from posthouse.model.errors import PosthouseError
from posthouse.model.scopes import Scope
from posthouse.protocols.kafka.share_groups import errors as share_errors
from posthouse.protocols.noop import noop


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


_CODES: dict[type[PosthouseError], ErrorCode] = {
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.UnsupportedFormat: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.InvalidTransaction: ErrorCode.INVALID_TXN_STATE,
    errors.UnknownProducerId: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.TwoPhaseDisabled: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.InvalidTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidPattern: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.InvalidTopology: ErrorCode.STREAMS_INVALID_TOPOLOGY,
    errors.TooEarly: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.UnknownSubscription: ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupSubscribed: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.InvalidCredential: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    errors.LoginFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.BadRequest: ErrorCode.INVALID_REQUEST,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.UnknownTransaction: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.NotFound: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.NotLeased: ErrorCode.INVALID_RECORD_STATE,
    share_errors.UnknownShareSession: ErrorCode.SHARE_SESSION_NOT_FOUND,
    share_errors.WrongShareSessionEpoch: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    share_errors.TooManyShareSessions: ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    errors.UnstableOffset: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.ConcurrentTransaction: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.GroupsClosed: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Consumers silently retry a storage error, but report a corrupt message: unreadable records must not look
    # like a pause.
    errors.DataDamaged: ErrorCode.CORRUPT_MESSAGE,
    errors.Unavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    PosthouseError: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class ProtocolViolation(Exception):
    """The client violated the protocol in a way that has no error response; the connection is closed."""


class CloseWithoutResponse(ProtocolViolation):
    """A request failed, and closing the connection tells the client: it expects no response (acks 0), or
    later requests on the connection must not take effect without this one."""


class NeedsHolder(Exception):
    """Only the broker that holds the scope can answer the request: it is relayed."""

    def __init__(self, scope: Scope, answered: Callable[["asyncio.Future[bytes]"], None] = noop) -> None:
        """`answered` is called with what became of the relayed request."""
        super().__init__(f"the request is for the broker that holds {scope}")
        self.scope = scope
        self.answered = answered


class Refused(Exception):
    """A request or a part of it that is answered with `code`: for rules that only Kafka has."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: PosthouseError | Refused, *, by_id: bool = False) -> ErrorCode:
    """`by_id`: the client named the topic by its id; an unknown topic then has its own code."""
    if isinstance(error, Refused):
        return error.code
    if by_id and isinstance(error, errors.UnknownTopic):
        return ErrorCode.UNKNOWN_TOPIC_ID
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
