"""Errors of the broker as codes of the protocol. They go into the status of an answer: gRPC itself says
OK."""

import logging
from typing import Final

from posthouse.model.errors import (
    AccessRefused,
    AlreadyDecided,
    BadRequest,
    CorruptBatch,
    InvalidFilter,
    InvalidGroupId,
    InvalidTimestamp,
    InvalidTopicName,
    LoginFailed,
    NotFound,
    NotLeased,
    OffsetOutOfRange,
    PosthouseError,
    RecordTooLarge,
    Unavailable,
    UnknownGroup,
    UnknownTopic,
    UnknownTransaction,
)
from posthouse.protocols.rocketmq.codec.errors import Malformed
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Status

log = logging.getLogger(__name__)

OK: Final = Status(code=Code.OK, message="OK")

_CODES: Final[tuple[tuple[type[BaseException], Code], ...]] = (
    (UnknownTopic, Code.TOPIC_NOT_FOUND),
    (UnknownGroup, Code.CONSUMER_GROUP_NOT_FOUND),
    (UnknownTransaction, Code.INVALID_TRANSACTION_ID),
    (NotFound, Code.NOT_FOUND),
    (AccessRefused, Code.FORBIDDEN),
    (LoginFailed, Code.UNAUTHORIZED),
    (InvalidFilter, Code.ILLEGAL_FILTER_EXPRESSION),
    (InvalidTopicName, Code.ILLEGAL_TOPIC),
    (InvalidGroupId, Code.ILLEGAL_CONSUMER_GROUP),
    (InvalidTimestamp, Code.ILLEGAL_DELIVERY_TIME),
    (RecordTooLarge, Code.MESSAGE_BODY_TOO_LARGE),
    (CorruptBatch, Code.MESSAGE_CORRUPTED),
    (OffsetOutOfRange, Code.ILLEGAL_OFFSET),
    (NotLeased, Code.INVALID_RECEIPT_HANDLE),
    (AlreadyDecided, Code.PRECONDITION_FAILED),
    (BadRequest, Code.BAD_REQUEST),
    (Malformed, Code.BAD_REQUEST),
    (Unavailable, Code.INTERNAL_SERVER_ERROR),
)


class Refused(Exception):
    """A request that is answered with this code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def status_of(error: BaseException) -> Status:
    if isinstance(error, Refused):
        return Status(code=error.code, message=str(error))
    if isinstance(error, PosthouseError | Malformed):
        for kind, code in _CODES:
            if isinstance(error, kind):
                return Status(code=code, message=str(error))
        return Status(code=Code.INTERNAL_SERVER_ERROR, message=str(error))
    log.error("a RocketMQ request failed by an error of the broker itself", exc_info=error)
    return Status(code=Code.INTERNAL_ERROR, message="the broker failed; its log says why")
