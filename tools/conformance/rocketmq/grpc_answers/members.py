"""What clients say of themselves on the stream of telemetry, heartbeats, and their end."""

from collections.abc import Iterable

from posthouse.protocols.rocketmq.grpc.messages.definition import (
    FilterExpression,
    Resource,
    SubscriptionEntry,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import ClientType, FilterType
from posthouse.protocols.rocketmq.grpc.messages.service import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    SyncLiteSubscriptionRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    Publishing,
    Settings,
    Subscription,
    TelemetryCommand,
    ThreadStackTrace,
)
from tools.conformance.rocketmq.grpc_answers.steps import Steps, connected

_SAID_BEFORE = ("backoff_policy", "max_body_size", "validate_message_type")
"""Fields of settings that are the same for all producers and all consumers: they are compared once."""
PUSH, SIMPLE = ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER


def entry(topic: str, expression: str = "*", kind: FilterType = FilterType.TAG) -> SubscriptionEntry:
    return SubscriptionEntry(
        topic=Resource(name=topic), expression=FilterExpression(type=kind, expression=expression)
    )


def producing(*topics: str, kind: ClientType | None = ClientType.PRODUCER) -> TelemetryCommand:
    publishing = Publishing(topics=tuple(Resource(name=each) for each in topics))
    return TelemetryCommand(settings=Settings(client_type=kind, publishing=publishing))


def consuming(group: str, *entries: SubscriptionEntry, kind: ClientType | None = SIMPLE) -> TelemetryCommand:
    subscription = Subscription(group=Resource(name=group), subscriptions=entries)
    return TelemetryCommand(settings=Settings(client_type=kind, subscription=subscription))


def beat(group: str | None, kind: ClientType = SIMPLE) -> HeartbeatRequest:
    return HeartbeatRequest(group=None if group is None else Resource(name=group), client_type=kind)


def end(group: str | None) -> NotifyClientTerminationRequest:
    return NotifyClientTerminationRequest(group=None if group is None else Resource(name=group))


async def run(steps: Steps) -> None:
    await _tell(steps, _settings())
    await _tell(steps, _other_settings(), *_SAID_BEFORE)
    await _tell(steps, _bad_commands(), *_SAID_BEFORE)
    async with connected(steps.endpoints, None) as nobody:
        await steps.tell("settings of a client without an id", producing("normal"), nobody)
    await _heartbeats(steps)


async def _tell(steps: Steps, commands: Iterable[tuple[str, TelemetryCommand | bytes]], *but: str) -> None:
    for name, command in commands:
        async with connected(steps.endpoints, name.replace(" ", "-")) as client:
            await steps.tell(name, command, client, *but)


def _settings() -> Iterable[tuple[str, TelemetryCommand]]:
    yield "settings of a producer", producing("normal")
    yield "settings of a push consumer", consuming("group", entry("normal"), kind=PUSH)


def _other_settings() -> Iterable[tuple[str, TelemetryCommand]]:
    yield "settings of a producer without topics", producing()
    yield (
        "settings of a push consumer of an ordered group",
        consuming("in-order", entry("ordered"), kind=PUSH),
    )
    yield "settings of a simple consumer", consuming("group", entry("normal"))
    sql = entry("normal", "own = 'value'", FilterType.SQL)
    yield "settings of a consumer that filters by SQL", consuming("group", sql)
    yield "settings of a consumer without subscriptions", consuming("group")


def _bad_commands() -> Iterable[tuple[str, TelemetryCommand | bytes]]:
    yield "settings of a producer to an unknown topic", producing("unknown")
    yield "settings of a producer to a topic with a blank in its name", producing("an swers")
    yield "settings of a consumer of an unknown topic", consuming("group", entry("unknown"))
    yield "settings of a consumer of an unknown group", consuming("strangers", entry("normal"))
    yield "settings of a consumer without a group", consuming("", entry("normal"))
    yield "settings of a consumer of a group with a blank in its name", consuming("a group", entry("normal"))
    yield (
        "settings of a consumer with a filter that is no SQL",
        consuming("group", entry("normal", "own = = 'value'", FilterType.SQL)),
    )
    yield "settings of a consumer with a blank tag", consuming("group", entry("normal", "red || "))
    yield "settings of a producer without its type", producing("normal", kind=None)
    yield "settings of a consumer that says it is a producer", consuming("group", kind=ClientType.PRODUCER)
    yield "settings of neither", TelemetryCommand(settings=Settings(client_type=ClientType.PRODUCER))
    trace = ThreadStackTrace(nonce="none", thread_stack_trace="main")
    yield "a trace that nobody has asked for", TelemetryCommand(thread_stack_trace=trace)
    yield "bytes that are no command", b"\xff\xff\xff"


async def _heartbeats(steps: Steps) -> None:
    async with steps.member("beating", consuming("group", entry("normal"))) as member:
        await steps.call("heartbeat", beat("group"), member)
        await steps.call("heartbeat without a group", beat(None), member)
        await steps.call("heartbeat of no type", beat("group", ClientType.CLIENT_TYPE_UNSPECIFIED), member)
        await steps.call("heartbeat for a group with a blank in its name", beat("a group"), member)
        await steps.call("end of a client", end("group"), member)
        await steps.call("heartbeat after the end", beat("group"), member)
        await steps.call("end of a client again", end("group"), member)
    async with steps.member("sending", producing("normal")) as member:
        await steps.call("heartbeat of a producer", beat(None, ClientType.PRODUCER), member)
        await steps.call("end of a producer", end(None), member)
    async with connected(steps.endpoints, "stranger") as stranger:
        await steps.call("heartbeat of an unknown client", beat("group"), stranger)
        await steps.call("heartbeat of an unknown producer", beat(None, ClientType.PRODUCER), stranger)
    async with connected(steps.endpoints, "another stranger") as stranger:
        await steps.call("end of an unknown client", end("group"), stranger)
        lite = SyncLiteSubscriptionRequest(topic=Resource(name="normal"), group=Resource(name="group"))
        await steps.call("subscription to lite topics", lite, stranger)
    async with connected(steps.endpoints, None) as nobody:
        await steps.call("heartbeat of a client without an id", beat("group"), nobody)
