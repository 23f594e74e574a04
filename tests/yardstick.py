"""How slow this machine is at the moment. Limits of processor time are multiplied by it.

Processor time is not the same everywhere: clock rates differ, a hyperthread shares its core, and other
processes fill the caches. So tests compare with a piece of work of the same kind, Python objects that become
JSON, which is measured beside what they look at.
"""

import gc
import json
from dataclasses import dataclass
from time import thread_time

_OBJECTS = 60_000
_STRIDE = 20
_QUIET_SECONDS = 0.0115
"""What the piece of work takes on a machine on which the limits were chosen, if nothing else runs."""


@dataclass(slots=True)
class _Object:
    name: str
    count: int
    labels: dict[str, str]


_objects: list[_Object] = []


def slowness() -> float:
    """1 or more."""
    if not _objects:
        _objects.extend(_Object(f"object-{each}", each, {"name": f"n{each}"}) for each in range(_OBJECTS))
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        began = thread_time()
        _work()
        return max(1.0, (thread_time() - began) / _QUIET_SECONDS)
    finally:
        if was_enabled:
            gc.enable()


def _work() -> None:
    for start in range(0, _STRIDE, 10):
        shown = [
            {"name": each.name, "count": each.count, "labels": {**each.labels, "of": each.name.upper()}}
            for each in _objects[start::_STRIDE]
            if each.count >= 0
        ]
        json.dumps(shown)
