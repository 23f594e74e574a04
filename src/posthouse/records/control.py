"""Control batches: the markers that end a transaction in a partition.

One record, never compressed. Key: version i16 (0), type i16 (0 abort, 1 commit). Value: version i16 (0),
coordinator epoch i32.
"""

from struct import Struct

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import Readable
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import iter_records

ABORT = 0
COMMIT = 1

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


def build_marker(producer_id: int, producer_epoch: int, *, commit: bool, timestamp: int) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
    builder.add(_KEY.pack(0, COMMIT if commit else ABORT), _VALUE.pack(0, 0), (), timestamp)
    return builder.build()


def is_commit(marker: Readable) -> bool:
    """Whether a control batch commits. Other kinds of control records do not occur here."""
    record = next(iter(iter_records(marker)), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch("a control batch without a marker in it")
    _, kind = _KEY.unpack_from(record.key)
    return bool(kind == COMMIT)
