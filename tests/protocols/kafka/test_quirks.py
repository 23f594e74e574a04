"""Requests that are sent wrong by clients in wide use, and those that only look like it."""

import pytest

from posthouse.protocols.kafka.codec.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from posthouse.protocols.kafka.codec.registry import APIS
from posthouse.protocols.kafka.quirks import repaired

KEY = 51
HEADER = b"what comes before"
REQUESTS = [
    AlterUserScramCredentialsRequest(deletions=[], upsertions=[]),
    AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="a")], upsertions=[]),
    *(
        AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                ScramCredentialUpsertion(
                    name="a", mechanism=1, iterations=8192, salt=b"salt", salted_password=salted
                )
            ],
        )
        for salted in (b"x" * 32, b"x" * 30 + bytes(2), bytes(32), b"")
    ),
]


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("extra", [b"", b"\0"])
def test_a_second_end_is_taken_off(request_: AlterUserScramCredentialsRequest, extra: bytes) -> None:
    body = b"".join(map(bytes, APIS[KEY].encode_request(request_)))
    frame = memoryview(HEADER + body + extra)
    assert bytes(repaired(KEY, 0, frame, len(HEADER))) == HEADER + body


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0", b"\1\1\0\1", b"\xff\0", b"\1\1\0\0\0"])
def test_what_is_wrong_otherwise_stays_as_it_is(body: bytes) -> None:
    frame = memoryview(HEADER + body)
    assert repaired(KEY, 0, frame, len(HEADER)) == frame
