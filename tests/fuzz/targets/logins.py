"""What clients say to log in."""

from collections.abc import Iterator
from contextlib import suppress

from posthouse.broker.access.scram import ScramServer, Verifier
from posthouse.model.errors import LoginFailed
from posthouse.model.scram import Mechanism
from tests.fuzz.target import Target

_SALT = bytes(24)


def _verifier(user: str, mechanism: Mechanism) -> Verifier:
    """Of nobody's password: no proof can be right."""
    return Verifier(mechanism, _SALT, 8192, bytes(mechanism.key_bytes), bytes(mechanism.key_bytes))


def scram(data: bytes) -> None:
    """Two messages with a zero byte between them, for both mechanisms."""
    first, _, final = data.partition(b"\0")
    for mechanism in Mechanism:
        exchange = ScramServer(mechanism, _verifier, random=bytes)
        with suppress(LoginFailed):
            answer = exchange.first(first)
            assert answer.startswith(b"r=") and len(answer) < len(first) + 200
        with suppress(LoginFailed):
            exchange.final(final)
            raise AssertionError("whoever knows no password logged in")


def _seeds() -> Iterator[bytes]:
    nonce = b"fyko+d2lbbFgONRv9qkxdawL"
    whole = nonce + b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    proof = b"A" * 43 + b"="
    yield b"n,,n=user,r=" + nonce + b"\0c=biws,r=" + whole + b",p=" + proof
    yield b"n,a=us=2Cer,n=us=2Cer,r=" + nonce + b",x=y\0c=bixhPXVzPTJDZXIs,r=" + whole + b",x=y,p=" + proof
    yield b"y,,n=\xc3\xa9,r=x\0c=eSws,r=x,p=AAAA"


TARGETS = (Target(name="scram", run=scram, seeds=_seeds, longest=1000),)
