"""Errors of the broker as response codes. Which of them is tried again is the client's own matter."""

import logging
from typing import Final

from posthouse.model.errors import (
    AccessRefused,
    BadRequest,
    InvalidFilter,
    InvalidTopicName,
    LoginFailed,
    NotFound,
    PosthouseError,
    Unavailable,
)
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.codec.errors import Malformed

log = logging.getLogger(__name__)

_CODES: Final = (
    (NotFound, ResponseCode.TOPIC_NOT_EXIST),
    (AccessRefused, ResponseCode.NO_PERMISSION),
    (LoginFailed, ResponseCode.NO_PERMISSION),
    (InvalidFilter, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    (InvalidTopicName, ResponseCode.INVALID_PARAMETER),
    (BadRequest, ResponseCode.MESSAGE_ILLEGAL),
    (Malformed, ResponseCode.MESSAGE_ILLEGAL),
    (Unavailable, ResponseCode.SERVICE_NOT_AVAILABLE),
)
"""Producers in Java try 1, 2, 14, 16, 17, 204, 205 and 1500 again, not 13 and 29."""


class Refused(Exception):
    """A request that is answered with this code."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def code_of(error: BaseException) -> ResponseCode:
    if isinstance(error, Refused):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if not isinstance(error, PosthouseError):
        log.error("a RocketMQ request failed by an error of the broker itself", exc_info=error)
    return ResponseCode.SYSTEM_ERROR


def remark_of(error: BaseException) -> str:
    if isinstance(error, Refused | PosthouseError | Malformed):
        return str(error)
    return "the broker failed; its log says why"
