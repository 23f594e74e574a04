"""What users may do, method by method; and what permissions mean for those who have started already."""

import asyncio

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx

from posthouse.broker.access.operations import Operation
from posthouse.protocols.amqp.codec.access import Request
from posthouse.protocols.amqp.methods.table import HANDLERS
from tests.protocols.amqp.access_cases import CASES, READ, WITHOUT_ANSWER, WRITE, Case
from tests.protocols.amqp.guarded import ADMIN, REFUSED, GuardedRig, prepared
from tests.protocols.amqp.steps import Publish
from tests.protocols.amqp.wire import Closed, Wire
from tests.wire.amqp import Content


async def do(wire: Wire, case: Case) -> None:
    """Raises Closed where it is refused."""
    await wire.call(1, Channel.Open())
    for step in case.before:
        await wire.call(1, step)
    if isinstance(case.method, Publish):
        wire.publish_step(1, case.method)
        await wire.call(1, Basic.Qos())
    else:
        await wire.call(1, case.method)
    await wire.call(1, Channel.Close(200, "", 0, 0))


async def refusal(wire: Wire, case: Case) -> Closed:
    with pytest.raises(Closed) as refused:
        await do(wire, case)
    assert (refused.value.channel, refused.value.code) == (1, 403)
    assert (refused.value.class_id, refused.value.method_id) == (
        case.kind.index >> 16,
        case.kind.index & 0xFFFF,
    )
    return refused.value


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_what_a_method_needs(case: Case) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        async with await prepared(rig), await rig.log_in("ann") as ann:
            await ann.call(1, Channel.Close(200, "", 0, 0))
            for missing, topic, words in case.needs:
                await rig.forbid("ann")
                given = [each for each in case.permissions if each != (missing, topic)]
                # A permission for everything would stand for the one that is to be missing.
                assert (missing, "*") not in given
                await rig.permit("ann", *given)
                del rig.recorded[:]
                assert (await refusal(ann, case)).text == REFUSED.format(words)
                assert ("User:ann", missing, f"topic:{topic}", False) in rig.recorded
            await rig.forbid("ann")
            await rig.permit("ann", *case.permissions)
            await do(ann, case)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_who_may_do_everything_may_do_each(case: Case) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (Operation.ALL, "*"))
        async with await prepared(rig), await rig.log_in("ann") as ann:
            await ann.call(1, Channel.Close(200, "", 0, 0))
            await do(ann, case)


@pytest.mark.parametrize("case", [case for case in CASES if case.needs], ids=lambda case: case.name)
async def test_one_no_outweighs_every_yes(case: Case) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (Operation.ALL, "*"))
        operation, topic, words = case.needs[-1]
        await rig.permit("ann", (operation, topic), allow=False)
        async with await prepared(rig), await rig.log_in("ann") as ann:
            await ann.call(1, Channel.Close(200, "", 0, 0))
            assert (await refusal(ann, case)).text == REFUSED.format(words)


def test_every_method_is_in_the_table() -> None:
    # access.request permits nothing: every client gets the same ticket, and nobody looks at it.
    asked = {case.kind for case in CASES} | set(WITHOUT_ANSWER) | {Request}
    assert asked == {*HANDLERS, Basic.Publish}


# Not there, and not to be seen


@pytest.mark.parametrize(
    "case",
    [
        Case("look", Queue.Declare(queue="new", passive=True)),
        Case("get", Basic.Get(queue="new")),
        Case("consume", Basic.Consume(queue="new")),
        Case("purge", Queue.Purge(queue="new")),
        Case("bind", Queue.Bind(queue="new", exchange="nor this")),
        Case("look at an exchange", Exchange.Declare(exchange="new", passive=True)),
        Case("publish", Publish("new", "any")),
    ],
    ids=lambda case: case.name,
)
async def test_whoever_may_do_nothing_learns_nothing(case: Case) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        async with await rig.log_in("ann") as ann:
            await ann.call(1, Channel.Close(200, "", 0, 0))
            await refusal(ann, case)
            await rig.permit("ann", (Operation.ALL, "*"))
            with pytest.raises(Closed) as refused:
                await do(ann, case)
            assert refused.value.code == 404


@pytest.mark.parametrize(("exchange", "key"), [(b"\xff", b"q"), (b"", b"\xff")])
async def test_names_that_cannot_be(exchange: bytes, key: bytes) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (WRITE, "q"))
        async with await rig.log_in("ann") as ann:
            ann.raw(1, 1, b"\0\x3c\0\x28\0\0%c%b%c%b\0" % (len(exchange), exchange, len(key), key))
            ann.raw(2, 1, b"\0\x3c\0\0" + bytes(8) + b"\0\0")
            assert (await ann.receive())[1].reply_code == 403


# Publishing


async def test_what_was_published_before_a_refusal_is_there() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (WRITE, "q"))
        async with await prepared(rig) as admin, await rig.log_in("ann") as ann:
            for number in range(3):
                ann.publish(1, "", "q", b"%d" % number)
            ann.publish(1, "x", "any", b"refused")
            ann.publish(1, "", "q", b"too late")
            assert (await ann.receive())[1].reply_code == 403
            ann.send(1, Channel.CloseOk())
            await ann.call(1, Channel.Open())
            assert (await admin.call(1, Queue.Declare(queue="q"))).message_count == 3


async def test_confirms_of_what_came_before_a_refusal() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (WRITE, "q"))
        async with await prepared(rig), await rig.log_in("ann") as ann:
            await ann.call(1, Confirm.Select())
            ann.publish(1, "", "q")
            assert (await ann.expect(1, Basic.Ack)).delivery_tag == 1
            ann.publish(1, "", "q2")
            assert (await ann.receive())[1].reply_code == 403


async def test_a_refused_copy_leaves_nothing_anywhere() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (WRITE, "q"))
        async with await prepared(rig) as admin, await rig.log_in("ann") as ann:
            ann.publish(1, "", "q", headers={"CC": ["q2"]})
            assert (await ann.receive())[1].reply_code == 403
            for queue in ("q", "q2"):
                assert (await admin.call(1, Queue.Declare(queue=queue))).message_count == 0


async def test_a_transaction_is_refused_where_it_publishes() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (WRITE, "q"))
        async with await prepared(rig) as admin, await rig.log_in("ann") as ann:
            await ann.call(1, Tx.Select())
            ann.publish(1, "", "q")
            ann.publish(1, "", "q2")
            _, close = await ann.receive()
            assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 40)
            assert (await admin.call(1, Queue.Declare(queue="q"))).message_count == 0


async def test_a_permission_counts_from_the_next_message_on() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        async with await prepared(rig), await rig.log_in("ann") as ann:
            ann.publish(1, "", "q")
            assert (await ann.receive())[1].reply_code == 403
            ann.send(1, Channel.CloseOk())
            await rig.permit("ann", (WRITE, "q*"))
            await ann.call(1, Channel.Open())
            ann.publish(1, "", "q")
            await ann.call(1, Basic.Qos())
            await rig.forbid("ann")
            ann.publish(1, "", "q")
            assert (await ann.receive())[1].reply_code == 403
            assert rig.queue("q").message_count == 1


async def test_whoever_consumes_goes_on_without_the_permission() -> None:
    """As with RabbitMQ: it is asked for when a consumer begins."""
    async with GuardedRig() as rig:
        await rig.with_user("ann", (READ, "q"))
        async with await prepared(rig) as admin, await rig.log_in("ann") as ann:
            await ann.call(1, Basic.Consume(queue="q"))
            await rig.forbid("ann")
            admin.publish(1, "", "q", b"still")
            assert (await ann.content(1)).body == b"still"
            ann.send(1, Basic.Get(queue="q"))
            assert (await ann.receive())[1].reply_code == 403


# Virtual hosts


@pytest.mark.parametrize(
    ("permitted", "enters"),
    [
        ([], False),
        ([(READ, "other..q")], True),
        ([(READ, "other..*")], True),
        ([(READ, "o*")], True),
        ([(READ, "*")], True),
        ([(READ, "x.other-strange-name.*")], True),
        ([(READ, "other")], False),
        ([(READ, "another..q")], False),
        ([(READ, "q*")], False),
    ],
    ids=str,
)
async def test_who_enters_a_virtual_host(permitted: list[tuple[Operation, str]], enters: bool) -> None:
    async with GuardedRig(namespaces=("/", "other")) as rig:
        await rig.with_user("ann", *permitted)
        await (await rig.log_in("ann")).close()
        await (await rig.log_in(ADMIN, vhost="other")).close()
        if enters:
            await (await rig.log_in("ann", vhost="other")).close()
            return
        with pytest.raises(Closed) as refused:
            await rig.log_in("ann", vhost="other")
        assert (refused.value.channel, refused.value.code) == (0, 530)
        assert refused.value.text == "NOT_ALLOWED - access to vhost 'other' refused for user 'ann'"
        assert ("User:ann", "describe", "topic:other..*", False) in rig.recorded


async def test_permissions_in_a_virtual_host_are_for_its_own_names() -> None:
    async with GuardedRig(namespaces=("/", "other")) as rig:
        await rig.with_user("ann", (Operation.CREATE, "other..*"), (WRITE, "other..*"), (READ, "q"))
        async with await rig.log_in("ann", vhost="other") as ann:
            await ann.call(1, Queue.Declare(queue="q"))
            ann.publish(1, "", "q")
            refused = await ann.refused(1, [Basic.Get(queue="q")])
            assert refused.text == (
                "ACCESS_REFUSED - read access to queue 'q' in vhost 'other' refused for user 'ann'"
            )


async def test_a_queue_that_is_deleted_while_it_is_declared_again() -> None:
    """Whoever may only look at it does not make a new one."""
    async with GuardedRig() as rig:
        await rig.with_user("ann", (READ, "q"), (WRITE, "q"))
        async with await prepared(rig) as admin, await rig.log_in("ann") as ann:
            for _ in range(20):
                ann.publish(1, "", "q")
                ann.send(1, Queue.Declare(queue="q"))
                admin.send(1, Queue.Delete(queue="q"))
                await admin.expect(1, Queue.DeleteOk)
                _, got = await ann.receive()
                assert isinstance(got, Queue.DeclareOk | Channel.Close)
                assert "q" not in rig.broker.namespaces.get("/").queues
                await admin.call(1, Queue.Declare(queue="q"))
                if isinstance(got, Channel.Close):
                    assert got.reply_code == 403
                    ann.send(1, Channel.CloseOk())
                    await ann.call(1, Channel.Open())


async def test_without_authentication_nothing_is_asked(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q"))
    channel.publish(1, "", "q")
    assert isinstance(await channel.call(1, Basic.Get(queue="q")), Content)
    channel.send(0, Connection.Close(200, "", 0, 0))
    await asyncio.wait_for(channel.expect(0, Connection.CloseOk), 30)
