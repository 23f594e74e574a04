"""The client's side of SCRAM, against the vectors of the RFCs and the broker's side."""

from base64 import b64decode, b64encode

import pytest

from posthouse.broker.access import scram as server
from posthouse.client.errors import LoginRefused
from posthouse.client.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Proof
from posthouse.model.errors import LoginFailed
from posthouse.model.scram import Mechanism

PASSWORD = "pencil"


def fixed(length: int) -> bytes:
    return b"\x01" * length


def verifier(mechanism: Mechanism, password: str) -> server.Verifier:
    return server.verifier_of(mechanism, password, iterations=server.MIN_ITERATIONS)


def test_the_vector_of_rfc_7677() -> None:
    # The nonce of the RFC is no base64 of 24 bytes; that is all that is set here by hand.
    proof = Proof(Mechanism.SHA_256, "user", PASSWORD)
    proof._nonce = b"rOprNGfwEbeRWgbNEkqO"
    proof._bare = b"n=user,r=" + proof._nonce
    assert proof.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert proof.final(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    proof.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "ünïcode", "=2C"])
def test_the_broker_understands(mechanism: Mechanism, user: str) -> None:
    known = verifier(mechanism, "päßword,=")
    exchange = server.ScramServer(mechanism, lambda name, _: known)
    proof = Proof(mechanism, user, "päßword,=")
    proof.check(exchange.final(proof.final(exchange.first(proof.first()))))
    assert exchange.user == user


def test_a_wrong_password() -> None:
    known = verifier(Mechanism.SHA_256, "right")
    exchange = server.ScramServer(Mechanism.SHA_256, lambda name, _: known)
    proof = Proof(Mechanism.SHA_256, "alice", "wrong")
    with pytest.raises(LoginFailed):
        exchange.final(proof.final(exchange.first(proof.first())))


def test_a_broker_that_does_not_know_the_password() -> None:
    """It lets everybody in to see what they send."""
    known = verifier(Mechanism.SHA_256, PASSWORD)
    exchange = server.ScramServer(Mechanism.SHA_256, lambda name, _: known)
    proof = Proof(Mechanism.SHA_256, "alice", PASSWORD)
    answer = bytearray(exchange.final(proof.final(exchange.first(proof.first()))))
    signature = bytearray(b64decode(answer[2:]))
    signature[0] ^= 1
    with pytest.raises(LoginRefused, match="not your broker"):
        proof.check(b"v=" + b64encode(signature))
    with pytest.raises(LoginRefused, match="not your broker"):
        proof.check(b"e=other-error")


def test_the_end_without_a_beginning_proves_nothing() -> None:
    with pytest.raises(LoginRefused):
        Proof(Mechanism.SHA_256, "alice", PASSWORD).check(b"v=")


@pytest.mark.parametrize("iterations", [0, 1, LEAST_ITERATIONS - 1, MOST_ITERATIONS + 1, 999_999_999])
def test_iterations_beyond_reason(iterations: int) -> None:
    proof = Proof(Mechanism.SHA_512, "alice", PASSWORD, fixed)
    nonce = b64encode(fixed(24)) + b"server"
    with pytest.raises(LoginRefused, match=f"asks for {iterations} iterations"):
        proof.final(b"r=%b,s=c2FsdA==,i=%d" % (nonce, iterations))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=c2FsdA==,i=8192",
        b"r=" + b64encode(fixed(24)) + b",s=c2FsdA==,i=8192",
        b"r=" + b64encode(fixed(24)) + b"x,s=!!!,i=8192",
        b"r=" + b64encode(fixed(24)) + b"x,s=c2FsdA==,i=-1",
        b"r=" + b64encode(fixed(24)) + b"x,s=c2FsdA==,i=8192000000000000",
        b"m=extension,r=" + b64encode(fixed(24)) + b"x,s=c2FsdA==,i=8192",
    ],
)
def test_a_challenge_that_cannot_be_read(challenge: bytes) -> None:
    proof = Proof(Mechanism.SHA_256, "alice", PASSWORD, fixed)
    with pytest.raises(LoginRefused, match="cannot be read"):
        proof.final(challenge)
