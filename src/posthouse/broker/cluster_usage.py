"""Limits over all brokers of a cluster: what clients use of them at other brokers.

Every broker tells the others twice a second what its clients use of each limit. What it has told counts until
its next report, for `REPORT_SECONDS` at most, and only while it lives and is connected. So the limits are
approximate: what clients do at several brokers within half a second is not seen.

A report is bounded, however many clients there are: it names only those that use a tenth of an nth of their
limit at n brokers, and of them the `MOST_TOLD` that use most. Names are hashed with the secret of the
cluster, so that all are equally long, and no client can choose one that collides with another.
"""

import hashlib
import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from posthouse.model.clock import Clock, SystemClock
from posthouse.model.usage import KEY_BYTES, Limited, ToldUse, Use

REPORT_SECONDS = 5.0
MOST_TOLD = 1000
_UNTOLD_SHARE = 10
"""What is not told is together less than this part of a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    at: float
    uses: Mapping[bytes, ToldUse]


class ClusterUsage:
    """Of one broker. Owned by the event loop."""

    def __init__(self, secret: bytes, clock: Clock, others: Callable[[], Collection[UUID]]) -> None:
        """`others` are the incarnations of the other live brokers."""
        self._hash = hashlib.blake2b(digest_size=KEY_BYTES, key=secret[:64])
        self._clock = clock
        self._others = others
        self._reports: dict[UUID, _Report] = {}

    @property
    def least_told(self) -> float:
        """The part of a limit that clients of this broker have to use if the others are to be told."""
        return 1 / (_UNTOLD_SHARE * (len(self._others()) + 1))

    def report(self, uses: Iterable[Use]) -> list[ToldUse]:
        """What the others are told."""
        most = heapq.nlargest(MOST_TOLD, uses, key=_used_part)
        return [
            ToldUse(self._key(each.kind, each.name), math.ceil(each.amount), each.wants_more) for each in most
        ]

    def told(self, broker: UUID, report: Sequence[ToldUse] | None) -> None:
        """Another broker has told what its clients use; None if the connection with it is lost. Then its
        clients may have come here already, and must not be counted twice."""
        if report is None:
            self._reports.pop(broker, None)
            return
        uses = {each.key: each for each in report}
        self._reports[broker] = _Report(at=self._clock.monotonic(), uses=uses)
        for silent in [each for each in self._reports if self._report_of(each) is None]:
            del self._reports[silent]

    def connections(self, kind: Limited, name: str) -> int:
        """How many there are at other brokers, as far as these have told."""
        return sum(0 if use is None else use.amount for use in self._uses(kind, name))

    def needs(self, kind: Limited, name: str) -> list[float]:
        """The rate that each other broker needs. One that wants more, or has told nothing, needs any."""
        return [
            math.inf if use is None or use.wants_more else float(use.amount) for use in self._uses(kind, name)
        ]

    def _uses(self, kind: Limited, name: str) -> Iterator[ToldUse | None]:
        """At each other live broker; None where its use is not known."""
        others = self._others()
        if not others:
            return
        key = self._key(kind, name)
        unused = ToldUse(key, 0, wants_more=False)
        for each in others:
            report = self._report_of(each)
            yield None if report is None else report.uses.get(key, unused)

    def _report_of(self, broker: UUID) -> _Report | None:
        report = self._reports.get(broker)
        if report is None or self._clock.monotonic() - report.at > REPORT_SECONDS:
            return None
        return report

    def _key(self, kind: Limited, name: str) -> bytes:
        made = self._hash.copy()
        made.update(bytes([kind]) + name.encode(errors="surrogatepass"))
        return made.digest()


def _used_part(use: Use) -> float:
    return use.amount / use.limit


NO_OTHERS: Final = ClusterUsage(b"", SystemClock(), tuple)
"""Of a broker that is alone."""
