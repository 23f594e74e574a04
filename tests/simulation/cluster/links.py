"""The ways between hosts: each direction of each pair can be cut, slow, and healed.

What is sent while a way is cut is not lost: TCP sends it again, and it arrives when the way is healed, unless
the sender has given up its connection in a way that discards it.
"""

from collections.abc import Callable, Iterator
from random import Random

from tests.simulation.world import Entry, World

USUAL_NS = 2_000_000
CLIENTS = "clients"
DATABASE = "database"


class Stream:
    """One direction of one connection: what is sent on it arrives in its order."""

    __slots__ = ("arrives_ns", "held", "link", "on_stuck", "stuck_seconds")

    def __init__(self, link: "Link") -> None:
        self.link = link
        self.arrives_ns = 0
        self.held = 0
        """Messages that wait for the way to be healed."""
        self.stuck_seconds: float | None = None
        """How long the system waits for the other side before it gives up, and calls `on_stuck`."""
        self.on_stuck: Callable[[], None] | None = None

    def send(self, entry: Entry) -> None:
        self.link.send(self, entry)

    def discard(self) -> None:
        """What has not left the sender never will."""
        self.link.discard(self)


class Link:
    """From one host to another."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self.is_cut = False
        self.slowest_ns = USUAL_NS
        self._held: list[tuple[Stream, Entry]] = []

    def send(self, stream: Stream, entry: Entry) -> None:
        if not self.is_cut:
            self._schedule(stream, entry)
            return
        self._held.append((stream, entry))
        stream.held += 1
        if stream.held == 1 and stream.stuck_seconds is not None:
            world = self._world
            world.schedule(world.now_ns + int(stream.stuck_seconds * 1e9), lambda: _give_up(stream))

    def _schedule(self, stream: Stream, entry: Entry) -> None:
        when = self._world.now_ns + int(self.slowest_ns * self._random.random() ** 3)
        stream.arrives_ns = max(when, stream.arrives_ns)
        self._world.at(stream.arrives_ns, entry)

    def discard(self, stream: Stream) -> None:
        if stream.held:
            self._held = [each for each in self._held if each[0] is not stream]
            stream.held = 0

    def heal(self) -> None:
        self.is_cut = False
        held, self._held = self._held, []
        for stream, entry in held:
            stream.held = 0
            self._schedule(stream, entry)


def _give_up(stream: Stream) -> None:
    if stream.held and stream.on_stuck is not None:
        stream.on_stuck()


class Links:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random("links")
        self._links: dict[tuple[str, str], Link] = {}

    def way(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(self._world, self._random)
        return found

    def both(self, one: str, other: str) -> list[Link]:
        return [self.way(one, other), self.way(other, one)]

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def heal(self) -> None:
        for link in self:
            link.slowest_ns = USUAL_NS
            link.heal()
