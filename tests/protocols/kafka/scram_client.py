"""The client's side of SCRAM, by the book (RFC 5802): an oracle for the broker's."""

import hashlib
import hmac
from base64 import b64decode, b64encode

_DIGEST = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    ) -> None:
        self._digest = _DIGEST[mechanism]
        self._password = password.encode()
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        self.iterations = int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, b64decode(fields["s"]), self.iterations)
        without_proof = f"c={b64encode(b'n,,').decode()},r={fields['r']}"
        message = f"{self._bare},{answer.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._server_signature = hmac.digest(server_key, message, self._digest)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def accepts(self, answer: bytes) -> bool:
        return answer == b"v=" + b64encode(self._server_signature)
