"""What tools show of the broker and its cluster. Its settings are changed elsewhere."""

from collections.abc import Coroutine
from typing import Any, Final

from posthouse import __version__
from posthouse.broker.access.operations import CLUSTER as CLUSTER_RESOURCE
from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.rocketmq.codec.administration import encode_cluster, encode_table
from posthouse.protocols.rocketmq.codec.codes import Permission, ResponseCode
from posthouse.protocols.rocketmq.codec.routes import MASTER
from posthouse.protocols.rocketmq.names import BROKER, CLUSTER
from posthouse.protocols.rocketmq.remoting.call import Call, check_allowed
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.topics import DEFAULT_QUEUES

_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_NO_QUEUE: Final = (
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
)
"""Requests wait in no queue, and for no lock: always 0. Tools print `null` where one is missing."""


def cluster(call: Call) -> None:
    """As open as a route: it is where to connect."""
    call.answer(body=encode_cluster(CLUSTER, BROKER, str(call.connection.address)))


def settings(call: Call) -> None:
    """Those that upstream has, too, by its names."""
    check_allowed(call, Operation.DESCRIBE_CONFIGS, Kind.CLUSTER, CLUSTER_RESOURCE)
    server, address = call.connection.server, call.connection.address
    found = {
        "autoCreateTopicEnable": str(server.settings.auto_create_topics).lower(),
        "brokerClusterName": CLUSTER,
        "brokerId": str(MASTER),
        "brokerIP1": address.host,
        "brokerName": BROKER,
        "brokerPermission": str(int(Permission.READ | Permission.WRITE)),
        "defaultTopicQueueNums": str(DEFAULT_QUEUES),
        "enablePropertyFilter": "true",
        "flushDiskType": "SYNC_FLUSH",
        "listenPort": str(address.port),
        "maxMessageSize": str(server.settings.topic_defaults().max_message_bytes),
    }
    body = "".join(f"{name}={value}\n" for name, value in found.items())
    call.answer(fields={"version": "{}"}, body=body.encode())


def update_settings(call: Call) -> None:
    raise Refused(
        ResponseCode.NO_PERMISSION,
        "settings are not changed by RocketMQ's tools: use posthouse config, or the settings file",
    )


def state(call: Call) -> Coroutine[Any, Any, None]:
    check_allowed(call, Operation.DESCRIBE, Kind.CLUSTER, CLUSTER_RESOURCE)
    return _state(call)


async def _state(call: Call) -> None:
    server = call.connection.server
    broker = server.broker
    condition = await broker.storage_condition()
    traffic = [each for _, each in broker.traffic.counted()]
    values = {
        "brokerActive": str(condition.refusal is None).lower(),
        "brokerVersionDesc": f"Posthouse {__version__}",
        "bootTimestamp": str(server.started_ms),
        "runtime": _duration((broker.now_ms() - server.started_ms) // 1000),
        "msgPutTotalTodayNow": str(sum(each.records_in for each in traffic)),
        "msgGetTotalTodayNow": str(sum(each.records_out for each in traffic)),
        "scheduledMessages": str(broker.scheduled_messages),
        "remainHowManyDataToFlush": f"{broker.unwritten_bytes} B",
    }
    values |= dict.fromkeys(
        (
            *_NO_QUEUE,
            "msgPutTotalTodayMorning",
            "msgPutTotalYesterdayMorning",
            "msgGetTotalTodayMorning",
            "msgGetTotalYesterdayMorning",
        ),
        "0",
    )
    if condition.total_bytes and condition.free_bytes is not None:
        values["commitLogDirCapacity"] = (
            f"Total : {condition.total_bytes} B, Free : {condition.free_bytes} B."
        )
        values["commitLogDiskRatio"] = f"{1 - condition.free_bytes / condition.total_bytes:.4f}"
    call.answer(body=encode_table(dict(sorted(values.items()))))


def _duration(seconds: int) -> str:
    return (
        f"[ {seconds // _DAY} days, {seconds % _DAY // _HOUR} hours, "
        f"{seconds % _HOUR // _MINUTE} minutes, {seconds % _MINUTE} seconds ]"
    )
