"""Certificates of the broker and of librdkafka's clients, in all the forms that its TLS test loads."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

_PASSWORD = "of the client's key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    authority: Path
    broker: Path
    broker_key: Path
    client: dict[str, str]
    """Settings with which librdkafka shows its certificate."""
    environment: dict[str, str]
    """Where the test finds the same in other encodings."""


def issue(directory: Path) -> Certificates:
    directory.mkdir(exist_ok=True)
    authority, unused = trustme.CA(), trustme.CA()
    served = authority.issue_cert("127.0.0.1", "localhost")
    client = authority.issue_cert("127.0.0.1", common_name="librdkafka")
    certificate = x509.load_pem_x509_certificate(client.cert_chain_pems[0].bytes())
    authority_certificate = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    encryption = BestAvailableEncryption(_PASSWORD.encode())
    files = {
        "ca_pem": authority.cert_pem.bytes(),
        "ca_der": authority_certificate.public_bytes(Encoding.DER),
        "all_cas_pem": authority.cert_pem.bytes() + unused.cert_pem.bytes(),
        "pub_pem": client.cert_chain_pems[0].bytes(),
        "pub_der": certificate.public_bytes(Encoding.DER),
        "priv_pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption),
        "priv_der": key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, encryption),
        "pkcs": pkcs12.serialize_key_and_certificates(
            b"librdkafka",
            key,  # type: ignore[arg-type]
            certificate,
            [authority_certificate],
            encryption,
        ),
        "broker": b"".join(each.bytes() for each in served.cert_chain_pems),
        "broker_key": served.private_key_pem.bytes(),
    }
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return Certificates(
        authority=directory / "ca_pem",
        broker=directory / "broker",
        broker_key=directory / "broker_key",
        client={
            "security.protocol": "SSL",
            "ssl.ca.location": str(directory / "ca_pem"),
            "ssl.certificate.location": str(directory / "pub_pem"),
            "ssl.key.location": str(directory / "priv_pem"),
            "ssl.key.password": _PASSWORD,
        },
        environment={f"SSL_{name}": str(directory / name) for name in files}
        | {"SSL_password": _PASSWORD, "SSL_client_auth": "required"},
    )
