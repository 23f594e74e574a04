"""Certificates for tests, of authorities that nobody else trusts."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path


class Authority:
    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self._directory = directory
        self._count = 0
        self.file = directory / "ca.pem"
        """Its own certificate."""
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, *hosts: str, name: str | None = None, expired: bool = False) -> Identity:
        """For hosts, and in the name of somebody (the common name)."""
        self._count += 1
        identity = Identity(
            self._directory / f"{self._count}.pem", self._directory / f"{self._count}-key.pem"
        )
        self.reissue(identity, *hosts, name=name, expired=expired)
        return identity

    def reissue(
        self, identity: Identity, *hosts: str, name: str | None = None, expired: bool = False
    ) -> None:
        """Another certificate and key in the same files."""
        made = self._ca.issue_cert(
            *(hosts or ("127.0.0.1", "localhost")), common_name=name, not_after=LONG_AGO if expired else None
        )
        made.private_key_pem.write_to_path(str(identity.key))
        for index, part in enumerate(made.cert_chain_pems):
            part.write_to_path(str(identity.certificate), append=index > 0)
