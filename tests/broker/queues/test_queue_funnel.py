"""Limits on what all consumers of a queue together get."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.broker.funnel.limits import UNLIMITED, DeliveryLimits
from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidConfig, InvalidDefinition, QueueBlocked, UnknownQueue
from tests.broker.queues.rig import PLAIN, Rig, Taker, running


async def turns() -> None:
    """Whatever could be delivered has been."""
    for _ in range(50):
        await asyncio.sleep(0)


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_consumers_together_hold_no_more_than_the_limit() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=3))
        takers = [Taker(), Taker()]
        for taker in takers:
            queue.subscribe(taker)
        await rig.publish(*values(20))
        done: list[bytes] = []
        while len(done) < 20:
            async with asyncio.timeout(30):
                while queue.leased_count < min(3, 20 - len(done)):
                    await asyncio.sleep(0)
            await turns()
            assert queue.leased_count == min(3, 20 - len(done))
            taker = takers[0] if takers[0].taken else takers[1]
            message = taker.taken.pop(0)
            done.append(message.value or b"")
            queue.ack([message])
        assert sorted(done) == sorted(values(20))


async def test_both_consumers_get_their_share_of_few_places() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=1))
        takers = [Taker(), Taker()]
        for taker in takers:
            queue.subscribe(taker)
        await rig.publish(*values(10))
        for number in range(10):
            async with asyncio.timeout(30):
                while sum(len(taker.taken) for taker in takers) <= number:
                    await asyncio.sleep(0)
            queue.ack([message for taker in takers for message in taker.taken if message.is_leased])
        assert [len(taker.taken) for taker in takers] == [5, 5]


async def test_a_rate_holds_messages_back_until_there_are_tokens() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(rate=100))
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(*values(100))
        await taker.has(10)
        for step in range(1, 5):
            await asyncio.sleep(0.03)  # timers of the event loop fire, but the clock has not moved
            assert len(taker.taken) == 10 * step
            clock.advance(0.1)
            await taker.has(10 * (step + 1))


async def test_what_comes_again_takes_tokens_too() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(rate=1))
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(b"a")
        await taker.has(1)
        queue.release(taker.taken)
        await asyncio.sleep(0.03)
        assert len(taker.taken) == 1
        clock.advance(1)
        queue.credit_raised()
        await taker.has(2)
        assert taker.taken[1].redelivered


async def test_a_limit_that_is_lifted_lets_everything_through() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(rate=0.01, concurrency=5))
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(*values(1000))
        await taker.has(1)
        await turns()
        assert len(taker.taken) == 1
        await rig.namespace.limits.remove("q")
        await taker.has(1000)
        assert taker.values == values(1000)
        assert queue.limits == UNLIMITED


async def test_a_wider_limit_wakes_the_queue() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=1))
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(*values(4))
        await taker.has(1)
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=3))
        await taker.has(3)
        await turns()
        assert queue.leased_count == 3


async def test_clients_that_ask_are_limited_too() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=2))
        await rig.publish(*values(5))
        first = await queue.get()
        polled = await queue.poll(10, 5, lease_seconds=30)
        assert first is not None
        assert len(polled) == 1
        assert await queue.get() is None
        waiting = asyncio.create_task(queue.poll(10, 60, lease_seconds=30))
        await turns()
        assert not waiting.done()
        queue.ack([first])
        async with asyncio.timeout(30):
            assert [message.value for message in await waiting] == [b"2"]


async def test_a_poll_waits_for_tokens() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(rate=1))
        await rig.publish(*values(3))
        assert len(await queue.poll(10, 5, lease_seconds=30)) == 1
        waiting = asyncio.create_task(queue.poll(10, 60, lease_seconds=30))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        clock.advance(1)
        async with asyncio.timeout(30):
            assert [message.value for message in await waiting] == [b"1"]


async def test_a_queue_that_holds_back_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(clock=ManualClock()) as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(rate=1, concurrency=1))
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(*values(100))
        await taker.has(1)
        queue.ack(taker.taken)
        await turns()
        pumped = 0
        pump = queue.dispatcher._pump

        def counted() -> None:
            nonlocal pumped
            pumped += 1
            pump()

        monkeypatch.setattr(queue.dispatcher, "_pump", counted)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert pumped <= 2, "a timer of a second may fire, and nothing else"


async def test_the_length_limit_counts_what_is_held_back() -> None:
    """Without limits, what a consumer takes at once does not count."""
    async with running() as rig:
        queue = await rig.queue(max_length=5)
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=2))
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(*values(20))
        async with asyncio.timeout(30):
            while queue.dispatcher.ready > 5:
                await asyncio.sleep(0.001)
        assert queue.leased_count == 2


async def test_a_limited_consumer_blocks_publishers_of_a_full_queue() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=3, overflow=OverflowPolicy.BLOCK)
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=1))
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(b"first")
        await taker.has(1)
        await rig.publish(*values(3))
        with pytest.raises(QueueBlocked):
            await rig.publish(b"too many")
        queue.ack(taker.taken)
        await taker.has(2)
        assert await rig.publish(b"fits")


async def test_limits_survive_a_restart_and_the_queue(tmp_path: Path) -> None:
    limits = DeliveryLimits(rate=12.5, concurrency=7)
    async with running(tmp_path) as rig:
        await rig.queue()
        await rig.namespace.limits.set("q", limits)
    async with running(tmp_path) as rig:
        assert rig.found("q").limits == limits
        await _delete(rig)
        assert (await rig.queue()).limits == limits, "they belong to the name"
        await rig.namespace.limits.remove("q")
    async with running(tmp_path) as rig:
        assert rig.found("q").limits == UNLIMITED
        assert rig.namespace.limits.get("q") is None


async def _delete(rig: Rig) -> None:
    await rig.namespace.delete_queue("q", None)


async def test_limits_of_the_declaration_apply_until_an_operator_sets_others() -> None:
    async with running() as rig:
        queue = await rig.queue(delivery_rate=5.0, delivery_concurrency=2)
        declared = DeliveryLimits(rate=5, concurrency=2)
        assert queue.limits == declared
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=9))
        assert queue.limits == DeliveryLimits(concurrency=9)
        await rig.namespace.limits.remove("q")
        assert queue.limits == declared


async def test_limits_that_make_no_sense_are_refused() -> None:
    async with running() as rig:
        await rig.queue()
        await rig.stream()
        limits = rig.namespace.limits
        for wrong in (
            UNLIMITED,
            DeliveryLimits(rate=0),
            DeliveryLimits(rate=-1),
            DeliveryLimits(concurrency=0),
        ):
            with pytest.raises(InvalidConfig):
                await limits.set("q", wrong)
        with pytest.raises(InvalidDefinition, match="reads on its own"):
            await limits.set("s", DeliveryLimits(rate=1))
        with pytest.raises(UnknownQueue):
            await limits.set("nowhere", DeliveryLimits(rate=1))
        with pytest.raises(UnknownQueue):
            await limits.remove("nowhere")
        assert await rig.publish(b"a", envelope=PLAIN)


async def test_a_consumer_that_leaves_frees_its_places() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=4))
        gone, other = Taker(), Taker()
        queue.subscribe(gone)
        await rig.publish(*values(10))
        await gone.has(4)
        queue.subscribe(other)
        await turns()
        assert not other.taken
        queue.unsubscribe(gone)
        queue.release(gone.taken)
        await other.has(4)
        await turns()
        assert other.values == values(4)


async def test_an_order_by_key_and_a_limit_hold_together() -> None:
    async with running() as rig:
        queue = await rig.queue(ordered_by_key=True)
        await rig.exchange("x")
        for key in (b"a", b"b", b"c"):
            await rig.bind("x", "q", key)
        await rig.namespace.limits.set("q", DeliveryLimits(concurrency=2))
        taker = Taker()
        queue.subscribe(taker)
        for key in (b"a", b"a", b"b", b"c"):
            await rig.publish(key, key=key, exchange="x")
        await taker.has(2)
        await turns()
        assert taker.values == [b"a", b"b"], "the second a waits for the first, c for a place"
        queue.ack([taker.taken[0]])
        await taker.has(3)
        await turns()
        assert taker.values == [b"a", b"b", b"a"]
        queue.ack(taker.taken[1:])
        await taker.has(4)
        assert taker.values[-1] == b"c"


ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 30)),
    st.tuples(st.just("ack"), st.integers(1, 10)),
    st.tuples(st.just("release"), st.integers(1, 10)),
    st.tuples(st.just("limit"), st.integers(0, 8)),
    st.tuples(st.just("get"), st.just(1)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(ACTIONS, max_size=25))
def test_whatever_happens_no_more_is_handed_out_than_allowed_and_nothing_is_forgotten(
    actions: list[tuple[str, int]],
) -> None:
    """A limit of 0 is none. A lower one takes nothing away from consumers."""
    asyncio.run(_any_order(actions))


async def _any_order(actions: list[tuple[str, int]]) -> None:
    async with running() as rig:
        queue = await rig.queue()
        takers = [Taker(), Taker()]
        for taker in takers:
            queue.subscribe(taker)
        published, limit, got = 0, 0, []
        for action, count in actions:
            held = queue.leased_count
            if action == "publish":
                await rig.publish(*[b"%d" % number for number in range(published, published + count)])
                published += count
            elif action == "get":
                got += [message] if (message := await queue.get()) is not None else []
            elif action == "limit":
                limit = count
                if limit:
                    await rig.namespace.limits.set("q", DeliveryLimits(concurrency=limit))
                else:
                    await rig.namespace.limits.remove("q")
            else:
                leased = [each for taker in takers for each in taker.taken if each.is_leased][:count]
                held -= len(leased)
                (queue.ack if action == "ack" else queue.release)(leased)
            await turns()
            if limit:
                assert queue.leased_count <= max(limit, held)
                async with asyncio.timeout(30):
                    while queue.leased_count < limit and queue.dispatcher.ready:
                        await asyncio.sleep(0)
        await rig.namespace.limits.remove("q")
        seen = {message.position for message in got}
        async with asyncio.timeout(30):
            while len(seen) < published:
                await asyncio.sleep(0)
                seen |= {message.position for taker in takers for message in taker.taken}
        assert queue.dispatcher.ready == 0
