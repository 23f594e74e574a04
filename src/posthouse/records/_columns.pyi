from posthouse.records.arrow_layout import BinaryColumn, HeaderColumn
from posthouse.records.batch import BatchHeader, Readable

_Binary = tuple[bytearray, bytearray, bytearray | None]
_Headers = tuple[bytearray, _Binary, _Binary]

class Decoder:
    def __init__(self, wanted: int, /) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def append(self, body: Readable, header: BatchHeader, first: int, end: int, /) -> None: ...
    def take(
        self,
    ) -> tuple[int, _Binary | None, _Binary | None, bytearray | None, bytearray | None, _Headers | None]: ...

def encode(
    key: BinaryColumn | None,
    value: BinaryColumn | None,
    headers: HeaderColumn | None,
    timestamps: Readable,
    rows: Readable,
    at: int,
    max_bytes: int,
    /,
) -> tuple[bytearray, int, int, int]: ...
def partitions(keys: BinaryColumn, rows: int, partitions: int, keyless: int, /) -> Readable: ...
def group(numbers: Readable, groups: int, /) -> list[Readable]: ...
