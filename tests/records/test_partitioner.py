"""Keys go where Kafka's own clients would put them."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from posthouse.records.partitioner import murmur2, partition_of


@given(st.binary(max_size=200))
def test_the_hash_is_that_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=50), st.integers(min_value=1, max_value=10_000))
def test_the_partition_is_that_of_kafka_python(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == (kafka_murmur2(key) & 0x7FFFFFFF) % partitions


def test_the_vectors_of_the_java_client() -> None:
    signed = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in signed} == {key: value & 0xFFFFFFFF for key, value in signed.items()}
