"""Permissions and queues: those of a client's own, and those that block publishers."""

from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Exchange, Queue

from posthouse.broker.access.operations import Operation
from posthouse.protocols.amqp.limits import AmqpLimits
from tests.protocols.amqp.access_cases import READ, WRITE
from tests.protocols.amqp.guarded import ADMIN, REFUSED, GuardedRig, prepared
from tests.protocols.amqp.wire import Closed, Wire
from tests.wire.amqp import Content


async def test_a_server_and_its_clients_with_little_permission() -> None:
    """RPC: requests by a queue, replies by one that the client has to itself."""
    async with GuardedRig() as rig:
        await rig.with_user("client", (WRITE, "q"))
        await rig.with_user("server", (READ, "q"), (WRITE, "amq.gen-*"))
        async with (
            await prepared(rig),
            await rig.log_in("client") as client,
            await rig.log_in("server") as server,
        ):
            replies = (await client.call(1, Queue.Declare(exclusive=True))).queue
            await client.call(1, Basic.Consume(queue=replies, no_ack=True))
            await server.call(1, Basic.Consume(queue="q", no_ack=True))
            client.publish(1, "", "q", b"2 + 2", reply_to=replies)
            request = await server.content(1)
            server.publish(1, "", request.properties.reply_to or "", b"4")
            assert (await client.content(1)).body == b"4"


async def test_direct_replies_need_no_permission() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("client", (WRITE, "q"))
        await rig.with_user("server", (READ, "q"))
        async with (
            await prepared(rig),
            await rig.log_in("client") as client,
            await rig.log_in("server") as server,
        ):
            await client.call(1, Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))
            await server.call(1, Basic.Consume(queue="q", no_ack=True))
            client.publish(1, "", "q", b"2 + 2", reply_to="amq.rabbitmq.reply-to")
            request = await server.content(1)
            server.publish(1, "", request.properties.reply_to or "", b"4")
            assert (await client.content(1)).body == b"4"


async def test_the_queue_of_somebody_else_is_not_ones_own() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        await rig.with_user("bob")
        async with await rig.log_in("ann") as ann, await rig.log_in("bob") as bob:
            name = (await ann.call(1, Queue.Declare(exclusive=True))).queue
            ann.publish(1, "", name, b"mine")
            assert isinstance(await ann.call(1, Basic.Get(queue=name)), Content)
            bob.publish(1, "", name, b"yours")
            assert (await bob.receive())[1].reply_code == 403
            bob.send(1, Channel.CloseOk())
            await bob.channel(2)
            assert (await bob.refused(2, [Basic.Get(queue=name)])).code == 403


async def test_a_name_of_ones_own_does_not_open_the_topic_of_that_name() -> None:
    """An exclusive queue gets what is written to the topic that is called as it is."""
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        async with await rig.log_in("ann") as ann:
            refused = await ann.refused(1, [Queue.Declare(queue="secrets", exclusive=True)])
            assert refused.text == REFUSED.format("configure access to queue 'secrets'")
            assert "secrets" not in rig.broker.namespaces.get("/").queues


async def test_an_exclusive_queue_of_a_chosen_name_is_like_any_other() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (Operation.CREATE, "new"))
        async with await rig.log_in("ann") as ann:
            await ann.call(1, Queue.Declare(queue="new", exclusive=True))
            for method in (Basic.Get(queue="new"), Queue.Purge(queue="new"), Queue.Delete(queue="new")):
                assert (await ann.refused(1, [method])).code == 403
                await ann.call(1, Channel.Open())
            ann.publish(1, "", "new")
            assert (await ann.receive())[1].reply_code == 403


BLOCKING: dict[str, Any] = {"x-overflow": "block", "x-max-length": 1}


async def blocking_scene(rig: GuardedRig) -> Wire:
    """Ann has a queue and an exchange of her own, and may read from x, to which the exchange v is bound."""
    mine = [(each, "ann*") for each in (Operation.CREATE, Operation.READ, Operation.WRITE)]
    await rig.with_user("ann", *mine, (Operation.READ, "x"))
    admin = await rig.log_in(ADMIN)
    for exchange in ("x", "v"):
        await admin.call(1, Exchange.Declare(exchange=exchange, exchange_type="fanout"))
    await admin.call(1, Exchange.Bind(destination="x", source="v"))
    ann = await rig.log_in("ann")
    await ann.call(1, Queue.Declare(queue="ann-blocks", arguments=BLOCKING))
    await ann.call(1, Exchange.Declare(exchange="ann-x", exchange_type="fanout"))
    return ann


async def test_a_reader_does_not_stop_those_who_write() -> None:
    async with GuardedRig() as rig, await blocking_scene(rig) as ann:
        with pytest.raises(Closed, match="write access to exchange 'x'"):
            await ann.call(1, Queue.Bind(queue="ann-blocks", exchange="x"))
        await rig.permit("ann", (Operation.WRITE, "x"))
        await ann.call(1, Channel.Open())
        with pytest.raises(Closed, match="write access to exchange 'v'"):
            await ann.call(1, Queue.Bind(queue="ann-blocks", exchange="x"))
        await rig.permit("ann", (Operation.WRITE, "v"))
        await ann.call(1, Channel.Open())
        await ann.call(1, Queue.Bind(queue="ann-blocks", exchange="x"))


async def test_nor_by_an_exchange_in_between() -> None:
    async with GuardedRig() as rig, await blocking_scene(rig) as ann:
        await ann.call(1, Queue.Bind(queue="ann-blocks", exchange="ann-x"))
        with pytest.raises(Closed, match="write access to exchange 'x'"):
            await ann.call(1, Exchange.Bind(destination="ann-x", source="x"))


async def test_nor_by_one_that_is_bound_before() -> None:
    async with GuardedRig() as rig, await blocking_scene(rig) as ann:
        await ann.call(1, Exchange.Bind(destination="ann-x", source="x"))
        await ann.call(1, Queue.Declare(queue="ann-harmless"))
        await ann.call(1, Queue.Bind(queue="ann-harmless", exchange="ann-x"))
        with pytest.raises(Closed, match="write access to exchange 'x'"):
            await ann.call(1, Queue.Bind(queue="ann-blocks", exchange="ann-x"))


async def test_nor_by_the_alternate_of_an_exchange() -> None:
    async with GuardedRig() as rig, await blocking_scene(rig) as ann:
        ae: dict[str, Any] = {"alternate-exchange": "ann-x"}
        await ann.call(1, Exchange.Declare(exchange="ann-y", exchange_type="fanout", arguments=ae))
        await ann.call(1, Exchange.Bind(destination="ann-y", source="x"))
        with pytest.raises(Closed, match="write access to exchange 'x'"):
            await ann.call(1, Queue.Bind(queue="ann-blocks", exchange="ann-x"))


async def test_queues_that_need_no_permission_are_not_without_end() -> None:
    async with GuardedRig(limits=AmqpLimits(max_own_queues=3)) as rig:
        await rig.with_user("ann")
        async with await rig.log_in("ann") as ann:
            own = Queue.Declare(queue="", exclusive=True)
            names = [(await ann.call(1, own)).queue for _ in range(3)]
            await ann.call(1, Queue.Delete(queue=names[0]))
            await ann.call(1, own)
            with pytest.raises(Closed, match="all that it may have without permission"):
                await ann.call(1, own)
            await rig.permit("ann", (Operation.CREATE, "*"))
            await ann.call(1, Channel.Open())
            await ann.call(1, own)
