"""Security settings of a connection: TLS and login.

All defaults are safe. Certificates are always verified, and so is the host name in them; there is no switch
to disable this.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from stat import S_ISREG
from typing import Self

from posthouse.client.errors import BadArgument

_PRIVATE = 0o077


class SaslMechanism(StrEnum):
    """SASL mechanism. With SCRAM the password never leaves this process; with PLAIN it is sent in the
    clear."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    PLAIN = "PLAIN"

    @classmethod
    def parse(cls, text: str) -> "SaslMechanism":
        try:
            return cls(text.strip().upper())
        except ValueError:
            raise BadArgument(f"{text!r} is not a SASL mechanism; use one of {', '.join(cls)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Raises BadArgument for contradictory settings. An authority or a certificate implies TLS."""

    tls: bool = False
    ca: Path | None = None
    """Trusted certificate authorities, in PEM; None: those of the system."""
    certificate: Path | None = None
    """The client certificate, in PEM, for brokers that require one; the key may be in the same file."""
    key: Path | None = None
    user: str | None = None
    """None: no login."""
    password: str = field(default="", repr=False)
    mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_256
    allow_cleartext_password: bool = False
    """Allow PLAIN without TLS, also beyond this machine."""

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise BadArgument("a key needs its certificate; name both")
        if self.user is not None and not self.password:
            raise BadArgument(
                f"the password of {self.user!r} is missing; name a file that holds it with --password-file, "
                "or set POSTHOUSE_PASSWORD"
            )
        if self.password and not self.user:
            raise BadArgument("there is a password but no user; give --user or set POSTHOUSE_USER")

    @property
    def is_encrypted(self) -> bool:
        return self.tls or self.ca is not None or self.certificate is not None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """From the variables POSTHOUSE_USER, …_PASSWORD_FILE or …_PASSWORD, …_CA and so on."""
        text = {name: environment.get(f"POSTHOUSE_{name}", "") for name in _VARIABLES}
        return cls(
            tls=text["TLS"].lower() in ("1", "true", "yes"),
            ca=_path(text["CA"]),
            certificate=_path(text["CERTIFICATE"]),
            key=_path(text["KEY"]),
            user=text["USER"] or None,
            password=password_in(Path(file)) if (file := text["PASSWORD_FILE"]) else text["PASSWORD"],
            mechanism=SaslMechanism.parse(text["MECHANISM"] or SaslMechanism.SCRAM_SHA_256),
        )

    def environment(self) -> dict[str, str]:
        """The variables from which `from_environment` restores this, for other processes."""
        given = {
            "TLS": "true" if self.tls else "",
            "CA": str(self.ca or ""),
            "CERTIFICATE": str(self.certificate or ""),
            "KEY": str(self.key or ""),
            "USER": self.user or "",
            "PASSWORD": self.password,
            "MECHANISM": self.mechanism if self.user else "",
        }
        return {f"POSTHOUSE_{name}": text for name, text in given.items() if text}


_VARIABLES = ("TLS", "CA", "CERTIFICATE", "KEY", "USER", "PASSWORD", "PASSWORD_FILE", "MECHANISM")

OPEN = Security()
"""No TLS and no login: enough for a broker on this machine that requires neither."""


def password_in(file: Path) -> str:
    """The first line of the file. Raises BadArgument if other users can read the file."""
    try:
        status = file.stat()
        # A pipe can be read only by the process that opened it, whatever its mode is.
        if S_ISREG(status.st_mode) and status.st_mode & _PRIVATE:
            raise BadArgument(f"other users can read the password file {file}; run: chmod 600 {file}")
        with file.open(encoding="utf-8") as lines:
            password = lines.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadArgument(f"the password in {file} is not UTF-8") from None
    if not password:
        raise BadArgument(f"there is no password in {file}; write it into the first line")
    return password


def _path(text: str) -> Path | None:
    return Path(text) if text else None
