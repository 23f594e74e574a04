"""Delayed messages that are due in a namespace of another broker than that of their schedule.

A schedule has the messages of the namespaces of one scope. Only one that was imported from the data directory
of a single broker has those of all namespaces: it hands over the others, in the commit that fires them.

Stored in `Space.DUE`, numbers big-endian:

    key    size of the namespace u32 | namespace | due ms u64 | 16 random bytes
    value  as the schedule has it (schedule/entry)
"""

import os
from struct import Struct

from posthouse.broker.routing.encoding import namespace_of
from posthouse.broker.schedule.entry import Scheduled, decode
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_SIZE = Struct(">I")
_DUE = Struct(">Q16s")


def due_put(entry: Scheduled) -> Put:
    namespace = entry.namespace.encode()
    key = _SIZE.pack(len(namespace)) + namespace + _DUE.pack(entry.due_ms, os.urandom(16))
    return Put(Space.DUE, key, entry.encode())


def namespace_due(key: bytes) -> str:
    return namespace_of(key)


def due_entry(key: bytes, value: bytes) -> Scheduled:
    due_ms, _ = _DUE.unpack(key[-_DUE.size :])
    return decode(due_ms, value)
