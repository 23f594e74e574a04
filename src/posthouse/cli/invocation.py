"""The global options of one invocation: broker address, login, and debug output."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posthouse.client.security import Security

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(slots=True)
class Invocation:
    """Filled in by the options before the command."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    debug: bool = False
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str | None = None
    """From the environment: other users of the machine can read a command line."""
    password_file: Path | None = None
    mechanism: str | None = None

    def security(self, *, ask: bool = True) -> Security:
        """The security settings. Prompts for a missing password if there is a terminal."""
        from posthouse.client.security import SaslMechanism, Security, password_in

        password = self.password or ""
        if self.password_file is not None:
            password = password_in(self.password_file)
        if self.user and not password and ask and sys.stdin.isatty() and sys.stderr.isatty():
            from posthouse.cli.passwords import ask_password

            password = self.password = ask_password(f"Password of {self.user}: ")
        return Security(
            tls=self.tls,
            ca=self.ca,
            certificate=self.certificate,
            key=self.key,
            user=self.user,
            password=password,
            mechanism=SaslMechanism.parse(self.mechanism or SaslMechanism.SCRAM_SHA_256),
        )
