"""SCRAM against a client that is written here from the RFC alone, and against whoever sends anything."""

import base64
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.broker.access.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramServer,
    Verifier,
    check_cost,
    verifier_of,
    verifier_of_salted,
)
from posthouse.model.errors import InvalidCredential, LoginFailed
from posthouse.model.scram import Mechanism
from tests.examples import examples

PASSWORD = "päss, word="
NOTHING = Verifier(Mechanism.SHA_256, b"salt", MIN_ITERATIONS, bytes(32), bytes(32))


class Client:
    """The client's side of RFC 5802."""

    def __init__(self, digest: str, user: str, password: str, gs2: str = "n,,", nonce: str = "cn") -> None:
        self._digest = digest
        self._password = password
        self._gs2 = gs2
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self.first = f"{gs2}{self._bare}".encode()
        self.server_signature = b""

    def final(self, answer: bytes, *, gs2: str | None = None, nonce: str | None = None) -> bytes:
        fields = dict(each.split("=", 1) for each in answer.decode().split(","))
        assert fields["r"].startswith(self._nonce)
        assert len(fields["r"]) > len(self._nonce) + 20
        salted = hashlib.pbkdf2_hmac(
            self._digest, self._password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        client_key = self._mac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        binding = base64.b64encode((self._gs2 if gs2 is None else gs2).encode()).decode()
        without_proof = f"c={binding},r={fields['r'] if nonce is None else nonce}"
        signed = f"{self._bare},{answer.decode()},{without_proof}".encode()
        signature = self._mac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def accepts(self, answer: bytes) -> bool:
        return answer == b"v=" + base64.b64encode(self.server_signature)

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._digest).digest()


VERIFIERS = {
    mechanism: verifier_of(mechanism, PASSWORD, iterations=MIN_ITERATIONS) for mechanism in Mechanism
}


def exchange(mechanism: Mechanism = Mechanism.SHA_256) -> ScramServer:
    return ScramServer(mechanism, lambda user, asked: VERIFIERS[asked])


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("user", ["ann", "a,b=c", "=2C", "Ünï"])
@pytest.mark.parametrize("gs2", ["n,,", "y,,"])
def test_a_login(mechanism: Mechanism, user: str, gs2: str) -> None:
    server, client = exchange(mechanism), Client(mechanism.digest, user, PASSWORD, gs2)
    assert client.accepts(server.final(client.final(server.first(client.first))))
    assert server.user == user


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text), st.sampled_from(Mechanism))
def test_any_password(password: str, mechanism: Mechanism) -> None:
    try:
        password.encode()
    except UnicodeEncodeError:
        return
    verifier = verifier_of(mechanism, password, iterations=MIN_ITERATIONS)
    server = ScramServer(mechanism, lambda user, asked: verifier)
    client = Client(mechanism.digest, "ann", password)
    assert client.accepts(server.final(client.final(server.first(client.first))))
    assert verifier.accepts(password)
    assert not verifier.accepts(password + "x")


def test_what_a_client_makes_of_a_password_is_enough() -> None:
    for mechanism, verifier in VERIFIERS.items():
        salted = hashlib.pbkdf2_hmac(mechanism.digest, PASSWORD.encode(), verifier.salt, verifier.iterations)
        assert verifier_of_salted(mechanism, salted, verifier.salt, verifier.iterations) == verifier
        other = bytes((salted[0] ^ 1, *salted[1:]))  # not shorter: HMAC pads a key with zeroes
        assert verifier_of_salted(mechanism, other, verifier.salt, verifier.iterations) != verifier
        for wrong in (b"", bytes(1025)):
            with pytest.raises(InvalidCredential):
                verifier_of_salted(mechanism, wrong, verifier.salt, verifier.iterations)


def test_a_wrong_password() -> None:
    server, client = exchange(), Client("sha256", "ann", PASSWORD + "!")
    with pytest.raises(LoginFailed):
        server.final(client.final(server.first(client.first)))


def test_nobody_has_the_password_of_somebody_who_does_not_exist() -> None:
    server, client = ScramServer(Mechanism.SHA_256, lambda user, asked: NOTHING), Client("sha256", "x", "")
    answer = server.first(client.first)
    for client_key in (bytes(32), b"\xff" * 32):
        # Even one who knows the verifier, which is all zeroes, has no key whose digest that is.
        without_proof = b"c=biws," + answer.split(b",")[0]
        signed = b"n=x,r=cn," + answer + b"," + without_proof
        signature = hmac.digest(bytes(32), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        with pytest.raises(LoginFailed):
            server.final(without_proof + b",p=" + base64.b64encode(proof))


def test_a_password_that_changes_in_the_middle() -> None:
    current = [VERIFIERS[Mechanism.SHA_256]]
    server = ScramServer(Mechanism.SHA_256, lambda user, asked: current[0])
    client = Client("sha256", "ann", PASSWORD)
    last = client.final(server.first(client.first))
    current[0] = NOTHING
    with pytest.raises(LoginFailed):
        server.final(last)


@pytest.mark.parametrize(
    "changed",
    [
        lambda client, answer: client.final(answer, gs2="y,,"),
        lambda client, answer: client.final(answer, nonce="cn"),
        lambda client, answer: client.final(answer, nonce="x" + answer.decode().split(",")[0][3:]),
        lambda client, answer: client.final(answer)[:-8] + b"AAAAAAA=",
        lambda client, answer: client.final(answer)[:-4],
        lambda client, answer: client.final(answer) + b",x=y",
        lambda client, answer: client.final(answer).replace(b",p=", b",p=!"),
        lambda client, answer: client.final(answer).replace(b"c=", b"C="),
        lambda client, answer: b"",
    ],
)
def test_a_last_message_that_was_changed(changed: Callable[[Client, bytes], bytes]) -> None:
    server, client = exchange(), Client("sha256", "ann", PASSWORD)
    answer = server.first(client.first)
    with pytest.raises(LoginFailed):
        server.final(changed(client, answer))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=ann",
        b"n,,n=ann,r=",
        b"n,,r=x,n=ann",
        b"n,,m=ext,n=ann,r=x",
        b"p=tls-unique,,n=ann,r=x",
        b"n,a=ben,n=ann,r=x",
        b"n,,n=a=b,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=ann,r=\x01",
        b"n,,n=ann,r=" + b"x" * 5000,
        b"n,,n=" + b"x" * 5000 + b",r=x",
    ],
)
def test_a_first_message_that_cannot_be_read(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        exchange().first(message)


def test_in_ones_own_name() -> None:
    server, client = exchange(), Client("sha256", "ann", PASSWORD, gs2="n,a=ann,")
    assert client.accepts(server.final(client.final(server.first(client.first))))


def test_a_last_message_without_a_first() -> None:
    with pytest.raises(LoginFailed):
        exchange().final(b"c=biws,r=x,p=AAAA")


def test_every_login_has_its_own_nonce() -> None:
    first = Client("sha256", "ann", PASSWORD).first
    assert len({exchange().first(first) for _ in range(20)}) == 20


@settings(max_examples=examples(300))
@given(st.data())
def test_whatever_comes_is_answered_or_refused(data: st.DataObject) -> None:
    """What is sent is mostly nearly right, and never gets in."""
    server, client = exchange(), Client("sha256", "ann", "guess")
    try:
        answer = server.first(data.draw(broken(client.first)))
    except LoginFailed:
        return
    last = b"c=biws," + answer.split(b",")[0] + b",p=" + base64.b64encode(bytes(32))
    with pytest.raises(LoginFailed):
        server.final(data.draw(broken(last)))


def broken(message: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, len(message))
    return (
        st.binary(max_size=100)
        | st.just(message)
        | st.builds(lambda at, junk: message[:at] + junk + message[at:], places, st.binary(max_size=4))
        | st.builds(lambda at, size: message[:at] + message[at + size :], places, st.integers(1, 9))
    )


@pytest.mark.parametrize(
    ("salt", "iterations"),
    [(b"s", MIN_ITERATIONS - 1), (b"s", MAX_ITERATIONS + 1), (b"s", 2**31), (b"", 8192), (bytes(1025), 8192)],
)
def test_what_a_password_may_cost(salt: bytes, iterations: int) -> None:
    with pytest.raises(InvalidCredential):
        check_cost(salt, iterations)
    with pytest.raises(InvalidCredential):
        verifier_of_salted(Mechanism.SHA_256, bytes(32), salt, iterations)


def test_nothing_of_a_verifier_shows() -> None:
    for verifier in VERIFIERS.values():
        shown = repr(verifier) + str(verifier)
        for secret in (verifier.stored_key, verifier.server_key, verifier.salt):
            assert repr(secret)[2:-1] not in shown
            assert secret.hex() not in shown
