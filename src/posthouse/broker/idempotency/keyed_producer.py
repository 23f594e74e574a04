"""An idempotency key as a producer: the log remembers it as it remembers the last batches of producers.

Every batch of a request has these numbers in its header, and so has the entry of the key in `key_log`:

    producer id    bits 62 and 61: 0 1 | hash of topic, owner and key, 61 bits
    epoch          the number of partitions of the topic
    sequence       the fingerprint of the request: an even number of 31 bits, not 0

The same request again has the same numbers, so storage finds the first copy of each of its batches, in the
same step that would append it, and on whichever broker. Another request with the key has another sequence,
and is refused: an entry is one record, and an even number never follows an even number. The partitions of
records depend on how many there are: if the topic got more since, the epoch tells how many there were.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from posthouse.model.ids import FIRST_KEYED, TopicId

MOST_PARTITIONS: Final = 2**15 - 1
_HASHED_BITS: Final = FIRST_KEYED - 1
_SEQUENCE_BITS: Final = 2**31 - 2
_FIRST_SEQUENCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    owner: str
    """The user. Keys of different users are different keys."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedProducer:
    id: int
    partitions: int
    sequence: int

    @property
    def epoch(self) -> int:
        return self.partitions


def keyed_producer(topic: TopicId, key: IdempotencyKey, fingerprint: bytes, partitions: int) -> KeyedProducer:
    """`fingerprint` is the hash of all that the request asks for."""
    return KeyedProducer(
        id=FIRST_KEYED | int.from_bytes(key_hash(topic, key)[:8], "big") & _HASHED_BITS,
        partitions=partitions,
        sequence=max(int.from_bytes(fingerprint[:4], "big") & _SEQUENCE_BITS, _FIRST_SEQUENCE),
    )


def key_hash(topic: TopicId, key: IdempotencyKey) -> bytes:
    """32 bytes. Every part has its size in front of it: no two keys have the same bytes."""
    parts = (topic, key.owner.encode(errors="surrogatepass"), key.text.encode(errors="surrogatepass"))
    return hashlib.sha256(b"".join(len(each).to_bytes(4, "big") + each for each in parts)).digest()
