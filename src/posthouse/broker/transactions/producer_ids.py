"""Producer ids, never assigned twice, not even after a crash.

A block of ids is made durable before its first one is used; ids left in it at shutdown are lost. Every broker
of a cluster takes blocks of its own: storage reserves them in one step, so no two brokers get the same.

A partition accepts every batch with a producer's id, epoch and next sequence number. A batch of another
client could lock the producer out, or make its batches look like duplicates. So where users log in, an id is
*bound* to the user who asked for it:

    bit 62: 1 | counter, 38 bits | tag, 24 bits

The tag is a MAC of counter and user. Checking it needs no stored state, and the ids of other users cannot be
guessed. Unbound ids are from a time without logins; every user may write with them.

    bits 62 and 61: 0 1 | hash of an idempotency key, 61 bits

Those are never given to a client: see `broker/idempotency/keyed_producer`.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol

from posthouse.model.errors import Unavailable
from posthouse.model.ids import FIRST_BOUND, is_keyed
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

BLOCK = 1000
LOST = 2**27
"""More ids than lost commits can have assigned: 134 million. Each id is the answer to one request, and
commits can be lost only until the next checkpoint, which follows within a minute. The counter has room for
2,000 losses."""
_KEY = b"next"
_TAG_BYTES = 3
_TAG_BITS = 8 * _TAG_BYTES
END = 1 << 38
"""End of the counter. Also without logins: they may be enabled later."""
_MOST_REMEMBERED = 10_000


class OwnerSecret(Protocol):
    """The broker's secret, from which the tags of ids are derived."""

    def key(self, purpose: str) -> bytes: ...

    async def store(self) -> None:
        """Returns when the secret is durable."""


class ProducerIds:
    """Owned by the event loop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()
        self.secret: bytes | None = None
        """Set if users log in."""
        self._store_secret: Callable[[], Awaitable[None]] | None = None
        self.must_bind = False
        """Users log in, so an id that is not bound to one must not be assigned."""
        self._owners: dict[int, str] = {}
        """Cache of checked ids: one lookup for every batch."""

    @property
    def awaits_secret(self) -> bool:
        """This broker does not coordinate, and has not read the secret yet: it assigns no ids."""
        return self.must_bind and self.secret is None

    def bind(self, secret: OwnerSecret) -> None:
        """Users log in: new ids are bound to them. The secret is stored before the first one is assigned."""
        self.secret = secret.key("producer ids")
        self._store_secret = secret.store
        self._owners.clear()

    def load(self) -> None:
        """No-op in a cluster: blocks are reserved there."""
        if self._storage.shared_state is not None:
            return
        stored = self._storage.take_state(Space.PRODUCER_IDS).get(_KEY)
        self._next = self._end = int.from_bytes(stored, "big") if stored else 0

    async def skip_lost(self) -> None:
        """Skip ids after lost commits, which may have held the last assigned block."""
        async with self._lock:
            await self._reserve(self._end + LOST)
            self._next = self._end

    async def take(self, owner: str = "") -> int:
        """A new id for this user. Without an owner, the id is for transactions only. Raises Unavailable."""
        if self.awaits_secret:
            raise Unavailable("the broker does not know the secret yet that binds producer ids to users")
        async with self._lock:
            if self._store_secret is not None:
                await self._store_secret()
                self._store_secret = None
            if self._next == self._end:
                await self._reserve_block()
            self._next += 1
            number = self._next - 1
        return number if self.secret is None else _bound(self.secret, number, owner)

    def belongs_to(self, producer_id: int, owner: str) -> bool:
        """Whether this user may write with the id. Not called for batches of transactions."""
        if is_keyed(producer_id):
            return False
        if producer_id < FIRST_BOUND or self.secret is None:
            return True
        if self._owners.get(producer_id) == owner:
            return True
        number = (producer_id - FIRST_BOUND) >> _TAG_BITS
        if producer_id != _bound(self.secret, number, owner):
            return False
        if len(self._owners) >= _MOST_REMEMBERED:
            self._owners.clear()
        self._owners[producer_id] = owner
        return True

    async def _reserve_block(self) -> None:
        shared = self._storage.shared_state
        if shared is None:
            await self._reserve(self._end + BLOCK)
            return
        first = await shared.reserve_producer_ids(BLOCK, END)
        if first is None:
            raise _used_up()
        self._next, self._end = first, first + BLOCK

    async def _reserve(self, end: int) -> None:
        if end > END:
            raise _used_up()
        await self._storage.commit([Put(Space.PRODUCER_IDS, _KEY, end.to_bytes(8, "big"))])
        self._end = end


def _used_up() -> Unavailable:
    return Unavailable(f"all {END} producer ids are used up: copy the topics to a new data directory")


def _bound(secret: bytes, number: int, owner: str) -> int:
    message = number.to_bytes(8, "big") + owner.encode(errors="surrogatepass")
    tag = int.from_bytes(hmac.digest(secret, message, "sha256")[:_TAG_BYTES], "big")
    return FIRST_BOUND | number << _TAG_BITS | tag
