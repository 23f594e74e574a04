"""Which trace contexts are found in batches and deliveries, and how much of them is looked at."""

from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.header_section import encode_section
from posthouse.tracing.trace_contexts import (
    MOST_BODY_BYTES,
    MOST_CONTEXTS,
    Delivered,
    TraceContext,
    contexts_in_batch,
    contexts_in_slice,
    contexts_of_delivery,
    may_carry_contexts,
    sampled_context,
)
from tests.tracing.collected import Parent


def batch_of(*parents: Parent, value: bytes = b"", codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    builder = BatchBuilder(codec)
    for parent in parents:
        builder.add(None, value, timestamp=0, headers=[("traceparent", parent.header.encode())])
    return bytes(builder.build(base_offset))


def context_of(parent: Parent) -> TraceContext:
    return TraceContext(parent.header.encode(), b"")


def test_records_of_one_context_are_counted_together() -> None:
    first, second = Parent(), Parent()
    found = contexts_in_batch(batch_of(first, second, first), 10)
    assert found.records == 3
    assert {context: (each.count, each.attributes) for context, each in found.contexts.items()} == {
        context_of(first): (2, {"messaging.kafka.offset": 10}),
        context_of(second): (1, {"messaging.kafka.offset": 11}),
    }


def test_a_refused_batch_has_no_offsets() -> None:
    [occurrence] = contexts_in_batch(batch_of(Parent()), None).contexts.values()
    assert occurrence.attributes == {}


def test_the_last_header_of_a_name_counts() -> None:
    first, last = Parent().header.encode(), Parent().header.encode()
    assert sampled_context([(b"traceparent", first), (b"traceparent", last)]) == TraceContext(last, b"")
    assert sampled_context([(b"traceparent", first), (b"traceparent", None)]) is None


def test_a_state_that_is_too_long_is_left_out() -> None:
    parent = Parent().header.encode()
    found = sampled_context([(b"traceparent", parent), (b"tracestate", b"a=" + b"x" * 600)])
    assert found == TraceContext(parent, b"")


def test_the_number_of_contexts_is_bounded() -> None:
    parents = [Parent() for _ in range(MOST_CONTEXTS + 5)]
    assert len(contexts_in_batch(batch_of(*parents), 0).contexts) == MOST_CONTEXTS


def test_a_large_batch_is_not_looked_into() -> None:
    value = bytes(MOST_BODY_BYTES)
    for codec in (Codec.NONE, Codec.ZSTD):
        assert not contexts_in_batch(batch_of(Parent(), value=value, codec=codec), 0).contexts


def test_garbage_holds_no_contexts() -> None:
    batch = batch_of(Parent())
    for length in range(len(batch)):
        assert not contexts_in_batch(batch[:length], 0).contexts
        assert not contexts_in_slice(batch[:length], [range(10)]).contexts


def test_only_wanted_offsets_of_a_slice_count() -> None:
    parents = [Parent() for _ in range(4)]
    data = batch_of(*parents[:2], codec=Codec.LZ4) + batch_of(*parents[2:], base_offset=2)
    found = contexts_in_slice(data, [range(1, 2), range(3, 100)])
    assert list(found.contexts) == [context_of(parents[1]), context_of(parents[3])]
    assert found.records == 2, "offsets 1 and 3"


def test_a_delivery_tells_where_its_message_lies_and_how_old_it_is() -> None:
    parent = Parent()
    section = encode_section([(b"traceparent", parent.header.encode())])
    traced = Delivered("orders", 3, 42, 1_000, section, True)
    others = [
        Delivered("orders", 3, 43, 1_000, section[:-1], False),
        Delivered("orders", 3, 44, 1_000, encode_section([(b"x", b"traceparent")]), False),
    ]
    found = contexts_of_delivery([traced, *others], 1_500)
    assert {context: dict(each.attributes) for context, each in found.items()} == {
        context_of(parent): {
            "messaging.destination_publish.name": "orders",
            "messaging.destination.partition.id": "3",
            "messaging.kafka.offset": 42,
            "posthouse.message.age_ms": 500,
            "posthouse.message.redelivered": True,
        }
    }


def test_small_batches_without_a_context_are_known_at_once() -> None:
    traced = batch_of(Parent())
    builder = BatchBuilder()
    builder.add(b"key", b"value", timestamp=0)
    plain = bytes(builder.build())
    assert not may_carry_contexts([plain, plain])
    assert may_carry_contexts([plain, traced])
    assert may_carry_contexts([batch_of(Parent(), codec=Codec.ZSTD)])
    assert may_carry_contexts([plain] * 5000), "too many to search them on the event loop"
    assert may_carry_contexts([b"short"])
