"""The requests that are served: by code, their names and handlers."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.remoting.call import Call
from posthouse.protocols.rocketmq.remoting.handlers import (
    locks,
    membership,
    offsets,
    pull,
    recalls,
    retries,
    routes,
    send,
    transactions,
)

Handler: TypeAlias = Callable[[Call], Coroutine[Any, Any, None] | None]
"""Answers the call, now or later by a callback, or returns what does so. Raises what `errors` knows."""

HANDLERS: Final[Mapping[int, Handler]] = {
    RequestCode.SEND_MESSAGE: send.send,
    RequestCode.PULL_MESSAGE: pull.pull,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search,
    RequestCode.GET_MAX_OFFSET: offsets.get_max,
    RequestCode.GET_MIN_OFFSET: offsets.get_min,
    RequestCode.HEART_BEAT: membership.heartbeat,
    RequestCode.UNREGISTER_CLIENT: membership.unregister,
    RequestCode.CONSUMER_SEND_MSG_BACK: retries.send_back,
    RequestCode.END_TRANSACTION: transactions.end,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: membership.members,
    RequestCode.LOCK_BATCH_MQ: locks.lock,
    RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
    RequestCode.CHECK_CLIENT_CONFIG: membership.check_filter,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: routes.route,
    RequestCode.SEND_MESSAGE_V2: send.send_v2,
    RequestCode.SEND_BATCH_MESSAGE: send.send_batch,
    RequestCode.LITE_PULL_MESSAGE: pull.pull,
    RequestCode.RECALL_MESSAGE: recalls.recall,
}
API_NAMES: Final[Mapping[int, str]] = {code: RequestCode(code).name.lower() for code in HANDLERS}
UNKNOWN_API: Final = "unknown"
