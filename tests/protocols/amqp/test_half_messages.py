"""Half messages of AMQP clients: prepared, decided, asked about; and what is refused."""

import asyncio
import logging
from typing import Any

import pytest
from pamqp.commands import Basic, Confirm, Exchange, Queue, Tx

from posthouse.broker.half_messages.parking import PARKED_TOPIC
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import StorageFenced
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.records.header_section import encode_section
from tests.broker.due_checks import make_due
from tests.protocols.amqp.access_cases import READ, WRITE
from tests.protocols.amqp.guarded import GuardedRig
from tests.protocols.amqp.rig import GatedStorage, Rig
from tests.protocols.amqp.wire import Closed, Wire
from tests.wire.amqp import Content


def half(
    wire: Wire,
    step: Any,
    *,
    id: str | None = "m-1",
    group: Any = "billing",
    exchange: str = "",
    key: str = "q",
    body: bytes = b"paid",
    mandatory: bool = False,
    headers: dict[str, Any] | None = None,
    **properties: Any,
) -> None:
    said = {"x-half-message": step, **({} if group is None else {"x-producer-group": group})}
    wire.publish(
        1,
        exchange,
        key,
        body,
        mandatory=mandatory,
        message_id=id,
        headers=said | (headers or {}),
        **properties,
    )


async def confirming(wire: Wire, *queues: str) -> Wire:
    for queue in queues:
        await wire.call(1, Queue.Declare(queue=queue))
    await wire.call(1, Confirm.Select())
    return wire


async def got(wire: Wire, queue: str = "q") -> Content | None:
    answer = await wire.call(1, Basic.Get(queue=queue, no_ack=True))
    return answer if isinstance(answer, Content) else None


async def check(rig: Rig) -> None:
    """As if the first check of all that is undecided were due."""
    make_due(rig.broker.half_messages)
    await rig.broker.half_messages.check()


async def test_a_commit_makes_it_visible(channel: Wire) -> None:
    await confirming(channel, "q")
    half(channel, "prepare", headers={"tenant": "a", "x-check-after-seconds": 60}, priority=3, app_id="shop")
    await channel.expect(1, Basic.Ack)
    assert await got(channel) is None
    half(channel, "commit", body=b"ignored", key="also ignored")
    await channel.expect(1, Basic.Ack)
    message = await got(channel)
    assert message is not None and message.body == b"paid"
    assert (message.method.exchange, message.method.routing_key) == ("", "q")
    properties = message.properties
    assert (properties.message_id, properties.priority, properties.app_id) == ("m-1", 3, "shop")
    assert properties.headers == {"tenant": "a"}, "forwarded as it is, it is not prepared again"
    assert await got(channel) is None


async def test_a_roll_back_ends_it(channel: Wire, caplog: pytest.LogCaptureFixture) -> None:
    await confirming(channel, "q")
    for step in ("prepare", "rollback", "rollback"):
        half(channel, step)
        await channel.expect(1, Basic.Ack)
    with caplog.at_level(logging.WARNING):
        half(channel, "commit")
        assert (await channel.expect(1, Basic.Nack)).delivery_tag == 4
    assert 'half message "m-1" of group "billing" is not committed: ' in caplog.text
    assert "was rolled back, or parked before" in caplog.text
    half(channel, "commit", mandatory=True, body=b"mine")
    returned = await channel.content(1, Basic.Return)
    assert (returned.method.reply_code, returned.body) == (406, b"mine")
    assert returned.method.reply_text.endswith("was rolled back, or parked before")
    await channel.expect(1, Basic.Nack)
    assert await got(channel) is None


async def test_confirms_keep_their_order(channel: Wire) -> None:
    await confirming(channel, "q")
    half(channel, "prepare")
    channel.publish(1, "", "q", b"plain")
    half(channel, "commit", id="unknown")
    half(channel, "prepare", id="m-2")
    taken: set[int] = set()
    refused: set[int] = set()
    while len(taken | refused) < 4:
        _, answer = await channel.receive()
        numbers = range(1, answer.delivery_tag + 1) if answer.multiple else [answer.delivery_tag]
        (taken if isinstance(answer, Basic.Ack) else refused).update(set(numbers) - taken - refused)
    assert (taken, refused) == ({1, 2, 4}, {3})


async def test_nothing_is_confirmed_before_it_is_on_disk() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await confirming(wire, "q")
        half(wire, "prepare", id="first")
        await wire.expect(1, Basic.Ack)
        storage.gate.clear()
        half(wire, "prepare")
        half(wire, "commit")  # of what is not on disk yet
        half(wire, "prepare")
        half(wire, "commit", id="first")
        await wire.nothing()
        storage.gate.set()
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 1 + 1
        assert (await wire.expect(1, Basic.Nack)).delivery_tag == 3
        last = 0
        while last < 5:
            last = (await wire.expect(1, Basic.Ack)).delivery_tag
        assert len(rig.broker.half_messages) == 1


async def test_what_cannot_be_written_is_nacked() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await confirming(wire, "q")
        half(wire, "prepare")
        await wire.expect(1, Basic.Ack)
        storage.failure = StorageFenced("the disk failed")
        half(wire, "prepare", id="m-2")
        await wire.expect(1, Basic.Nack)
        half(wire, "commit")
        await wire.expect(1, Basic.Nack)
        storage.failure = None
        half(wire, "prepare", id="m-2", body=b"other")
        await wire.expect(1, Basic.Ack)
        half(wire, "commit")
        await wire.expect(1, Basic.Ack)
        assert len(rig.broker.half_messages) == 1


async def test_another_connection_decides() -> None:
    async with Rig() as rig, await rig.open() as other:
        async with await rig.open() as wire:
            await confirming(wire, "q")
            half(wire, "prepare")
            await wire.expect(1, Basic.Ack)
        await confirming(other)
        for _ in range(2):
            half(other, "commit")
            await other.expect(1, Basic.Ack)
        assert (await got(other)) is not None
        assert (await got(other)) is None
        half(other, "rollback")
        await other.expect(1, Basic.Nack)
        half(other, "commit", group="others")
        await other.expect(1, Basic.Nack)


async def test_names_belong_to_one_message() -> None:
    async with Rig(namespaces=("/", "b")) as rig, await rig.open() as wire:
        await confirming(wire, "q")
        for group in ("billing", "other"):
            for _ in range(2):  # a producer that was not told repeats itself
                half(wire, "prepare", group=group, body=group.encode())
                await wire.expect(1, Basic.Ack)
        half(wire, "prepare", body=b"different")
        await wire.expect(1, Basic.Nack)
        half(wire, "prepare", key="elsewhere", mandatory=True)
        returned = await wire.content(1, Basic.Return)
        assert "has another half message with the name 'm-1'" in returned.method.reply_text
        await wire.expect(1, Basic.Nack)
        assert len(rig.broker.half_messages) == 2
        async with await rig.open(vhost="b") as elsewhere:
            await confirming(elsewhere, "q")
            half(elsewhere, "commit")
            await elsewhere.expect(1, Basic.Nack)
        half(wire, "commit")
        await wire.expect(1, Basic.Ack)
        half(wire, "prepare", body=b"billing")
        await wire.expect(1, Basic.Nack)


async def test_it_is_routed_when_it_is_committed(channel: Wire) -> None:
    await confirming(channel, "q", "late")
    await channel.call(1, Exchange.Declare(exchange="x", exchange_type="headers"))
    half(channel, "prepare", exchange="x", key="k", headers={"kind": "paid", "CC": ["copy"]})
    await channel.expect(1, Basic.Ack)
    await channel.call(
        1, Queue.Bind(queue="late", exchange="x", arguments={"x-match": "all", "kind": "paid"})
    )
    half(channel, "commit")
    await channel.expect(1, Basic.Ack)
    message = await got(channel, "late")
    assert message is not None
    assert (message.method.exchange, message.method.routing_key) == ("x", "k")
    assert await got(channel) is None


async def test_a_commit_that_reaches_no_queue_is_told(channel: Wire) -> None:
    await confirming(channel)
    half(channel, "prepare", key="nowhere")
    await channel.expect(1, Basic.Ack)
    half(channel, "commit", mandatory=True)
    returned = await channel.content(1, Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    await channel.expect(1, Basic.Ack)


async def test_delays_and_priorities(channel: Wire) -> None:
    await confirming(channel, "delayed")
    await channel.call(1, Queue.Declare(queue="by priority", arguments={"x-max-priority": 5}))
    await channel.call(
        1,
        Exchange.Declare(
            exchange="later", exchange_type="x-delayed-message", arguments={"x-delayed-type": "fanout"}
        ),
    )
    await channel.call(1, Queue.Bind(queue="delayed", exchange="later"))
    half(channel, "prepare", id="delayed", exchange="later", headers={"x-delay": 50})
    for number, priority in enumerate((1, 4)):
        half(channel, "prepare", id=str(number), key="by priority", priority=priority, body=b"%d" % number)
    await acked(channel, 3)
    for id in ("0", "1", "delayed"):
        half(channel, "commit", id=id)
    await acked(channel, 6)
    bodies = [message.body for _ in range(2) if (message := await got(channel, "by priority")) is not None]
    assert bodies == [b"1", b"0"]
    await channel.call(1, Basic.Consume(queue="delayed", no_ack=True))
    delivered = await channel.content(1)
    assert delivered.properties.headers == {"x-delay": -50}


async def acked(wire: Wire, last: int) -> None:
    while (await wire.expect(1, Basic.Ack)).delivery_tag < last:
        pass


async def test_a_full_queue_refuses_the_commit_as_a_whole(channel: Wire) -> None:
    await confirming(channel, "other")
    await channel.call(
        1, Queue.Declare(queue="q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    )
    await channel.call(1, Exchange.Declare(exchange="x", exchange_type="fanout"))
    for queue in ("q", "other"):
        await channel.call(1, Queue.Bind(queue=queue, exchange="x"))
    channel.publish(1, "", "q", b"full")
    half(channel, "prepare", exchange="x")
    await acked(channel, 2)
    half(channel, "commit")
    await channel.expect(1, Basic.Nack)
    assert await got(channel, "other") is None
    assert await got(channel) is not None
    half(channel, "commit")
    await channel.expect(1, Basic.Ack)
    assert [await got(channel, queue) is not None for queue in ("q", "other")] == [True, True]


async def test_the_exchange_is_gone() -> None:
    async with Rig() as rig, await rig.open() as wire:
        await confirming(wire)
        await wire.call(1, Exchange.Declare(exchange="x", exchange_type="fanout"))
        half(wire, "prepare", exchange="x")
        await wire.expect(1, Basic.Ack)
        await wire.call(1, Exchange.Delete(exchange="x"))
        half(wire, "commit")
        await wire.expect(1, Basic.Nack)
        assert len(rig.broker.half_messages) == 1
        await wire.call(1, Exchange.Declare(exchange="x", exchange_type="fanout"))
        half(wire, "commit")
        await wire.expect(1, Basic.Ack)


@pytest.mark.parametrize(
    ("wish", "code", "text"),
    [
        ({"step": "begin"}, 406, "x-half-message is prepare, commit or rollback, not 'begin'"),
        ({"step": "check"}, 406, "x-half-message is prepare, commit or rollback, not 'check'"),
        ({"step": ["prepare"]}, 406, "x-half-message is prepare, commit or rollback"),
        ({"group": None}, 406, "needs the header x-producer-group"),
        ({"group": 7}, 406, "needs the header x-producer-group"),
        ({"group": "g" * 201}, 406, "needs the header x-producer-group, a text of 1 to 200 bytes"),
        ({"id": None}, 406, "needs a message-id"),
        ({"id": ""}, 406, "needs a message-id"),
        ({"headers": {"x-check-queue": ""}}, 406, "needs the header x-check-queue"),
        ({"headers": {"x-check-after-seconds": -1}}, 406, "is a number from 0 to 259200, not -1"),
        ({"headers": {"x-check-after-seconds": "6"}}, 406, "is a number from 0 to 259200, not '6'"),
        ({"headers": {"CC": "no list"}}, 406, "unacceptable_type_in_header"),
        ({"exchange": "missing"}, 404, "no exchange 'missing' in vhost '/'"),
        ({"step": "commit", "exchange": "missing"}, 404, "no exchange 'missing' in vhost '/'"),
        ({"key": "amq.rabbitmq.reply-to.x"}, 406, "a direct reply cannot be a half message"),
        ({"exchange": "inner"}, 403, "cannot publish to internal"),
    ],
)
async def test_what_closes_the_channel(channel: Wire, wish: dict[str, Any], code: int, text: str) -> None:
    await channel.call(1, Exchange.Declare(exchange="inner", exchange_type="fanout", internal=True))
    await confirming(channel)
    half(channel, **{"step": "prepare"} | wish)
    with pytest.raises(Closed) as closed:
        await channel.expect(1, Basic.Ack)
    assert (closed.value.channel, closed.value.code) == (1, code)
    assert text in closed.value.text


@pytest.mark.parametrize("step", ["prepare", "commit"])
@pytest.mark.parametrize("mode", [None, Tx.Select()])
async def test_confirms_are_needed(channel: Wire, step: str, mode: Any) -> None:
    if mode is not None:
        await channel.call(1, mode)
    half(channel, step)
    with pytest.raises(Closed, match="half messages need publisher confirms"):
        await channel.call(1, Queue.Declare(queue="q"))


async def test_too_large() -> None:
    async with Rig(limits=AmqpLimits(max_body=1000)) as rig, await rig.open() as wire:
        await confirming(wire, "q")
        half(wire, "prepare", body=b"x" * 1001)
        with pytest.raises(Closed, match="larger than configured max size 1000"):
            await wire.expect(1, Basic.Ack)
    async with Rig() as rig, await rig.open() as wire:
        overrides = {"max.message.bytes": "1000"}
        await rig.broker.create_topics([NewTopic(name="q", partitions=1, overrides=overrides)])
        await confirming(wire, "q")
        half(wire, "prepare", body=b"x" * 1000)
        with pytest.raises(Closed, match="exceeds the limit of"):
            await wire.expect(1, Basic.Ack)
        assert len(rig.broker.half_messages) == 0


async def test_consumers_of_the_queue_for_checks_are_asked() -> None:
    async with Rig() as rig, await rig.open() as wire, await rig.open() as asked:
        await confirming(wire, "q", "posthouse.checks.billing", "mine")
        half(wire, "prepare", headers={"tenant": "a"}, expiration="60000")
        half(wire, "prepare", id="m-2", headers={"x-check-queue": "mine"})
        await acked(wire, 2)
        await check(rig)
        assert await got(wire, "posthouse.checks.billing") is None, "nobody is there to be asked"
        await asked.call(1, Basic.Consume(queue="posthouse.checks.billing", no_ack=True))
        await check(rig)
        delivered = await asked.content(1)
        assert (delivered.body, delivered.properties.message_id) == (b"paid", "m-1")
        assert (delivered.method.exchange, delivered.method.routing_key) == ("", "q")
        assert delivered.properties.headers == {
            "tenant": "a",
            "x-half-message": "check",
            "x-producer-group": "billing",
        }
        assert await got(wire, "mine") is None
        await asked.call(1, Basic.Consume(queue="mine", no_ack=True))
        await asked.call(1, Confirm.Select())
        await check(rig)
        ids = {(await asked.content(1)).properties.message_id for _ in range(2)}
        assert ids == {"m-1", "m-2"}
        known = [rig.broker.half_messages.find(id) for id in rig.broker.half_messages]
        assert [each.checks for each in known if each is not None] == [2, 1]
        half(asked, "commit", id="m-1")
        half(asked, "rollback", id="m-2")
        await acked(asked, 2)
        assert await got(wire) is not None
        assert await got(wire) is None


async def test_amqp_is_asked_about_records_with_names() -> None:
    """As they are prepared over HTTP: they have no properties."""
    async with Rig() as rig, await rig.open() as wire:
        await confirming(wire, "t", "posthouse.checks.billing")
        await rig.broker.create_topics([NewTopic(name="t", partitions=1)])
        stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        rig.broker.half_messages.prepare(
            rig.broker.topic("t"),
            0,
            None,
            b"paid",
            encode_section([(b"trace", b"7f3a")]),
            group="billing",
            name="m-1",
            stored=stored.set_result,
        )
        assert await stored == 0
        await wire.call(1, Basic.Consume(queue="posthouse.checks.billing", no_ack=True))
        await check(rig)
        asked = await wire.content(1)
        assert (asked.body, asked.properties.message_id) == (b"paid", "m-1")
        assert asked.properties.headers == {"x-half-message": "check", "x-producer-group": "billing"}
        half(wire, "commit")
        await wire.expect(1, Basic.Ack)
        message = await got(wire, "t")
        assert message is not None and message.body == b"paid"
        assert message.properties.headers == {"trace": "7f3a"}


async def test_a_broker_that_is_not_alone_refuses() -> None:
    async with Rig() as rig, await rig.open() as wire:
        rig.broker.half_messages._is_alone = False
        await confirming(wire, "q")
        half(wire, "prepare")
        with pytest.raises(Closed, match="half messages need a broker that is alone"):
            await wire.expect(1, Basic.Ack)


async def test_what_is_never_decided_is_parked() -> None:
    async with Rig() as rig, await rig.open() as wire:
        await confirming(wire, "q", PARKED_TOPIC)
        half(wire, "prepare", headers={"tenant": "a"})
        await wire.expect(1, Basic.Ack)
        [id] = rig.broker.half_messages
        known = rig.broker.half_messages.find(id)
        assert known is not None
        known.checks = 15
        await check(rig)
        async with asyncio.timeout(30):
            while len(rig.broker.half_messages):
                await asyncio.sleep(0)
        parked = await got(wire, PARKED_TOPIC)
        assert parked is not None and parked.body == b"paid"
        half(wire, "commit")
        await wire.expect(1, Basic.Nack)
        assert await got(wire) is None


async def test_permissions() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (WRITE, "q"), (WRITE, "posthouse.checks.billing"))
        await rig.with_user("bob", (READ, "q"), (WRITE, "posthouse.checks.billing"))
        await rig.with_user("cid", (WRITE, "q"))
        async with await rig.log_in() as admin, await rig.log_in("ann") as ann:
            await confirming(admin, "q")
            await ann.call(1, Confirm.Select())
            half(ann, "prepare")
            await ann.expect(1, Basic.Ack)
            for user, step, text in (
                ("bob", "prepare", "write access to queue 'q' in vhost '/' refused for user 'bob'"),
                ("bob", "commit", "write access to topic 'q' refused for user 'bob'"),
                ("cid", "prepare", "write access to queue 'posthouse.checks.billing'"),
            ):
                async with await rig.log_in(user) as wire:
                    await wire.call(1, Confirm.Select())
                    half(wire, step)
                    with pytest.raises(Closed) as closed:
                        await wire.expect(1, Basic.Ack)
                    assert closed.value.code == 403 and text in closed.value.text
            async with await rig.log_in("cid") as cid:
                await cid.call(1, Confirm.Select())
                half(cid, "commit")
                await cid.expect(1, Basic.Ack)
            assert await got(admin) is not None
            name = (await ann.call(1, Queue.Declare(exclusive=True))).queue
            half(ann, "prepare", id="own", key=name)
            with pytest.raises(Closed, match="write access to topic 'amq"):
                await ann.expect(1, Basic.Ack)
