"""The client's directions exist for the newest version; the server's are their mirror."""

from typing import Any

import pytest
from hypothesis import given

from tests.protocols.kafka.codec.codec_cases import NEWEST, Case, few, kio_bytes


@pytest.mark.parametrize("case", NEWEST, ids=str)
def test_round_trip(case: Case) -> None:
    @few(12)
    @given(case.plain_values)
    def check(plain: dict[str, Any]) -> None:
        ours = case.to_ours(plain)
        if case.side == "request":
            encoded = b"".join(case.api.encode_request(ours))
            assert case.api.decode_request(case.version, memoryview(encoded), 0) == ours
        else:
            encoded = b"".join(case.api.encode_response(case.version, ours))
            assert case.api.decode_response(memoryview(encoded), 0) == ours
        assert encoded == kio_bytes(case.to_kio(plain))

    check()
