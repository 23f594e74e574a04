"""Keys of objects: `YYYY/MM/DD/HH/<incarnation>-<random>-<number>`, the hour in UTC.

The hour comes first, so that orphans of an hour are found by one listing. The incarnation of the broker, a
random part and a number make a key unique: no key is used twice, also by a broker that takes the lease again
within the hour, which counts from one again. The table `object` refuses keys of an hour that
is long past, because an orphan of that hour may be deleted already.
"""

import os
from datetime import UTC, datetime
from itertools import count
from uuid import UUID

from posthouse.model.clock import Clock, SystemClock

_HOUR = "%Y/%m/%d/%H"


class ObjectNames:
    """Makes the keys of one broker. Committer and housekeeping share one.

    The clock must show the real time, also in tests: the database compares the hour with its own clock.
    """

    def __init__(self, incarnation: UUID, clock: Clock | None = None) -> None:
        self._maker = f"{incarnation.hex}-{os.urandom(4).hex()}"
        self._clock = clock or SystemClock()
        self._numbers = count(1)

    def new(self) -> str:
        return f"{hour_prefix(self._clock.now_ms())}/{self._maker}-{next(self._numbers)}"


def hour_prefix(ms: int) -> str:
    """What the keys of the hour have in common, without the slash behind it."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(_HOUR)
