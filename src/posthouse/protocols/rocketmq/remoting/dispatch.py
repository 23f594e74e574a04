"""The requests that are served: by code, their names and handlers."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.remoting.call import Call
from posthouse.protocols.rocketmq.remoting.handlers import (
    broker_info,
    connections,
    groups,
    locks,
    membership,
    offsets,
    pull,
    queries,
    recalls,
    replies,
    resets,
    retries,
    routes,
    send,
    statistics,
    topics,
    transactions,
)

Handler: TypeAlias = Callable[[Call], Coroutine[Any, Any, None] | None]
"""Answers the call, now or later by a callback, or returns what does so. Raises what `errors` knows."""

HANDLERS: Final[Mapping[int, Handler]] = {
    RequestCode.SEND_MESSAGE: send.send,
    RequestCode.PULL_MESSAGE: pull.pull,
    RequestCode.QUERY_MESSAGE: queries.query,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
    RequestCode.UPDATE_AND_CREATE_TOPIC: topics.create_or_grow,
    RequestCode.GET_ALL_TOPIC_CONFIG: topics.configurations,
    RequestCode.UPDATE_BROKER_CONFIG: broker_info.update_settings,
    RequestCode.GET_BROKER_CONFIG: broker_info.settings,
    RequestCode.GET_BROKER_RUNTIME_INFO: broker_info.state,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search,
    RequestCode.GET_MAX_OFFSET: offsets.get_max,
    RequestCode.GET_MIN_OFFSET: offsets.get_min,
    RequestCode.GET_EARLIEST_MSG_STORE_TIME: offsets.get_earliest_time,
    RequestCode.VIEW_MESSAGE_BY_ID: queries.view,
    RequestCode.HEART_BEAT: membership.heartbeat,
    RequestCode.UNREGISTER_CLIENT: membership.unregister,
    RequestCode.CONSUMER_SEND_MSG_BACK: retries.send_back,
    RequestCode.END_TRANSACTION: transactions.end,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: membership.members,
    RequestCode.LOCK_BATCH_MQ: locks.lock,
    RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
    RequestCode.CHECK_CLIENT_CONFIG: membership.check_filter,
    RequestCode.DELETE_KV_CONFIG: topics.delete_order,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: routes.route,
    RequestCode.GET_BROKER_CLUSTER_INFO: broker_info.cluster,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.create,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.configurations,
    RequestCode.GET_TOPIC_STATS_INFO: statistics.of_topic,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: connections.consumers,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: connections.producers,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics.names,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
    RequestCode.GET_CONSUME_STATS: statistics.of_group,
    RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: topics.delete_route,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: resets.reset,
    RequestCode.GET_TOPICS_BY_CLUSTER: topics.names,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups.of_topic,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: topics.system_names,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_names,
    RequestCode.GET_CONSUMER_RUNNING_INFO: connections.running_info,
    RequestCode.SEND_MESSAGE_V2: send.send_v2,
    RequestCode.SEND_BATCH_MESSAGE: send.send_batch,
    RequestCode.SEND_REPLY_MESSAGE: replies.reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply_v2,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: groups.topics,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: groups.subscription,
    RequestCode.GET_TOPIC_CONFIG: topics.configuration,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.configuration,
    RequestCode.LITE_PULL_MESSAGE: pull.pull,
    RequestCode.RECALL_MESSAGE: recalls.recall,
}
API_NAMES: Final[Mapping[int, str]] = {code: RequestCode(code).name.lower() for code in HANDLERS}
UNKNOWN_API: Final = "unknown"
