"""Records whose lengths lead back, or beyond their batch, end a reader that steps over them."""

import pytest

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.raw import iter_raw
from posthouse.records.varint import write_varint


@pytest.mark.parametrize("length", [-1, -5, -1000, 0, 1000, 2**31 - 1])
def test_a_length_that_leads_nowhere(length: int) -> None:
    builder = BatchBuilder()
    builder.add(b"k", b"v", (), 5)
    header = parse_header(builder.build())._replace(count=2**31 - 1, last_offset_delta=2**31 - 2)
    body = write_varint(length) + bytes(6)
    with pytest.raises(CorruptBatch):
        list(iter_raw(body, header, 5, 10))
