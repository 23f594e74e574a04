"""Groups, and all else that one broker does for all, come to another broker: how long clients wait."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bench.cluster.clusters import NAMES, cluster_of
from bench.cluster.contenders import INLINE, place_of
from bench.cluster.loads import new_target
from bench.cluster.moves import SEQUENCES, Members, Move, kill, wait_until_settled
from bench.cluster.plan import Stage
from bench.cluster.steady import (
    GROUPS,
    PRODUCERS,
    QUEUES,
    TRANSACTORS,
    Sample,
    Steady,
    latencies,
    steady_load,
    within,
)
from bench.queues.workers import now
from bench.scale.figures import Row

MOST_SECONDS = 10.0
"""Without a coordinator, after it was killed."""
NOTE = f"""Three brokers, under a light load: {PRODUCERS} clients produce single records, clients of
{GROUPS} groups commit offsets, {QUEUES} AMQP clients publish a message to a queue, and wait for its confirm
and for its delivery to a consumer of theirs, and {TRANSACTORS} clients write a record in a transaction of its
own, each 20 times a second. A client repeats a request until it is done, and asks for the coordinator of its
group or transactional id when that has changed; AMQP clients connect again. The time runs from the moment at
which the request was due. *The command* is the time until the cluster shows that it is done. Offset commits
need the coordinator of the group, transactions that of their id, and AMQP clients the broker that serves
their virtual host. Produces need none of them, but their broker may be the one that is stopped. Times are of
requests from the command until 2 s after its end. Each change was made once."""
_SETTLED_SECONDS = 2.0


class Moving:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        """By section, name and unit."""

    def rows(self) -> Iterator[Row]:
        for sequence in SEQUENCES:
            self._sequence(sequence)
        for (section, name, unit), rounds in self._found.items():
            is_limited = section == _section(_KILL) and name == _LONGEST
            yield Row(
                section=section,
                name=name,
                unit=unit,
                rounds=tuple(rounds),
                most=MOST_SECONDS if is_limited else None,
            )

    def _sequence(self, moves: Sequence[Move]) -> None:
        with (
            place_of(INLINE, self._stage.servers) as place,
            cluster_of(place, len(NAMES), {"admin": "127.0.0.1:0"}) as brokers,
        ):
            members = Members(dict(zip(NAMES, brokers, strict=True)))
            topic = new_target(brokers[0], "steady", None).topic
            self._stage.display.say("  brokers share the scopes")
            wait_until_settled(members)
            self._quiet(members, topic)
            for move in moves:
                self._move(move, members, topic)

    def _quiet(self, members: Members, topic: bytes) -> None:
        with steady_load(members.ports, topic) as load:
            time.sleep(self._stage.plan.seconds)
            found = load.end()
        self._note_latencies("Nothing moves", _by_name(found))

    def _move(self, move: Move, members: Members, topic: bytes) -> None:
        section = _section(move)
        with steady_load(members.ports, topic) as load:
            begun = now()
            move.run(members)
            took = now() - begun
            time.sleep(_SETTLED_SECONDS)
            ended = now()
            found = load.end()
        samples = {name: within(each, begun, ended) for name, each in _by_name(found).items()}
        self._note(section, "the command", "s", took)
        for name, one in _ONE.items():
            self._note(section, f"longest wait of {one}", "s", max(each.seconds for each in samples[name]))
        self._note_latencies(section, samples)
        requests = [each for of_name in samples.values() for each in of_name]
        repeated = sum(each.failures > 0 for each in requests)
        self._note(section, "requests that clients repeated", "%", repeated / len(requests) * 100)

    def _note_latencies(self, section: str, samples: Mapping[str, list[Sample]]) -> None:
        for name, each in samples.items():
            times = latencies(each)
            self._note(section, f"{name}, p50", "ms", times.p50)
            self._note(section, f"{name}, p99", "ms", times.p99)

    def _note(self, section: str, name: str, unit: str, value: float) -> None:
        self._stage.display.say(f"    {section}, {name}: {value:,.2f} {unit}")
        self._found[section, name, unit].append(value)


_COMMITTED, _EXCHANGED, _TRANSACTED = "offset commits", "messages through a queue", "transactions"
_ONE = {
    _COMMITTED: "an offset commit",
    _EXCHANGED: "a message through a queue",
    _TRANSACTED: "a transaction",
}
"""What may have to wait, and what one of it is called."""
_LONGEST = f"longest wait of {_ONE[_COMMITTED]}"
[_KILL] = (each for sequence in SEQUENCES for each in sequence if each.run is kill)


def _by_name(found: Steady) -> dict[str, list[Sample]]:
    return {
        "produce": found.produced,
        _COMMITTED: found.committed,
        _EXCHANGED: found.exchanged,
        _TRANSACTED: found.transacted,
    }


def _section(move: Move) -> str:
    return f"While a broker changes: {move.name}"


def moving(stage: Stage) -> Iterator[Row]:
    return Moving(stage).rows()
