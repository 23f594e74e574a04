"""Direct reply-to: questions through a queue, answers past it."""

from pamqp.commands import Basic, Channel, Confirm, Queue, Tx

from posthouse.protocols.amqp.reply_to import REPLY_TO
from posthouse.testing import AsyncBroker
from tests.protocols.amqp.wire import Wire


async def asking(wire: Wire) -> str:
    """Ask a question on channel 1; the address that the answer is to go to."""
    await wire.call(1, Queue.Declare(queue="questions"))
    await wire.call(1, Basic.Consume(queue=REPLY_TO, consumer_tag="answers", no_ack=True))
    wire.publish(1, "", "questions", b"why", reply_to=REPLY_TO, correlation_id="7")
    question = await wire.call(1, Basic.Get(queue="questions", no_ack=True))
    address: str = question.properties.reply_to
    assert address.startswith(f"{REPLY_TO}.")
    assert question.properties.correlation_id == "7"
    return address


async def test_question_and_answer(broker: AsyncBroker, channel: Wire) -> None:
    address = await asking(channel)
    async with await Wire.to(broker).open() as other:
        await other.channel(1)
        await other.call(1, Confirm.Select())
        other.publish(1, "", address, b"because", correlation_id="7", mandatory=True)
        assert (await other.expect(1, Basic.Ack)).delivery_tag == 1
    answer = await channel.content(1)
    assert (answer.body, answer.properties.correlation_id) == (b"because", "7")
    assert (answer.method.consumer_tag, answer.method.routing_key) == ("answers", address)


async def test_an_answer_to_nobody_cannot_be_routed(channel: Wire) -> None:
    address = await asking(channel)
    assert (await channel.call(1, Queue.Declare(queue=address, passive=True))).consumer_count == 1
    await channel.call(1, Basic.Cancel("answers"))
    await channel.call(1, Confirm.Select())
    channel.publish(1, "", address, mandatory=True)
    assert (await channel.content(1, Basic.Return)).method.reply_code == 312
    await channel.expect(1, Basic.Ack)
    channel.publish(1, "", address)
    await channel.expect(1, Basic.Ack)
    assert (await channel.refused(1, [Queue.Declare(queue=address, passive=True)])).code == 404


async def test_the_address_goes_with_its_channel(broker: AsyncBroker, channel: Wire) -> None:
    address = await asking(channel)
    await channel.call(1, Channel.Close(200, "", 0, 0))
    await channel.channel(2)
    channel.publish(2, "", address, mandatory=True)
    await channel.content(2, Basic.Return)


async def test_in_a_transaction_an_answer_waits_for_the_commit(channel: Wire) -> None:
    address = await asking(channel)
    await channel.channel(2)
    await channel.call(2, Tx.Select())
    channel.publish(2, "", address, b"no")
    await channel.call(2, Tx.Rollback())
    channel.publish(2, "", address, b"yes")
    await channel.nothing()
    channel.send(2, Tx.Commit())
    got = [await channel.receive(), await channel.receive()]
    assert {where for where, _ in got} == {1, 2}
    assert [each.body for where, each in got if where == 1] == [b"yes"]


async def test_another_reply_to_is_left_alone(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q"))
    channel.publish(1, "", "q", b"amq.rabbitmq.reply-to", reply_to="mine", message_id=REPLY_TO)
    got = await channel.call(1, Basic.Get(queue="q"))
    assert (got.properties.reply_to, got.properties.message_id) == ("mine", REPLY_TO)
