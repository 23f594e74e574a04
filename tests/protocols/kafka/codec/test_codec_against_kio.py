"""Every version of every API against kio: same bytes, same values."""

from typing import Any

import pytest
from hypothesis import given

from tests.protocols.kafka.codec.codec_cases import REQUESTS, RESPONSES, Case, kio_bytes, kio_value


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_request_written_by_kio_is_read(case: Case) -> None:
    @case.few(12)
    @given(case.plain_values)
    def check(plain: dict[str, Any]) -> None:
        encoded = b"header" + kio_bytes(case.to_kio(plain))
        decoded = case.api.decode_request(case.version, memoryview(encoded), 6)
        assert decoded == case.to_ours(plain)

    check()


@pytest.mark.parametrize("case", RESPONSES, ids=str)
def test_response_is_what_kio_writes_and_reads(case: Case) -> None:
    @case.few(12)
    @given(case.plain_values)
    def check(plain: dict[str, Any]) -> None:
        encoded = b"".join(case.api.encode_response(case.version, case.to_ours(plain)))
        expected = case.to_kio(plain)
        assert encoded == kio_bytes(expected)
        assert kio_value(case.entity, encoded) == expected

    check()
