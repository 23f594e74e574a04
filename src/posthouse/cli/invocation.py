"""The global options of one invocation: addresses of the broker, login, and debug output.

An option counts more than a variable, and a variable more than the profile. The profile that 'profile use'
chose is left aside where an address is given: it is for another broker then, and its login must not go there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posthouse.cli.profiles import Profile
    from posthouse.client.security import Security

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_ADMIN = "127.0.0.1:15672"


@dataclass(slots=True)
class Invocation:
    """Options fill it in, those in front of the command first."""

    bootstrap: str | None = None
    admin: str | None = None
    profile: str | None = None
    """Named by an option or a variable."""
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

    def given_bootstrap(self) -> str | None:
        """The address of the broker, if an option, a variable or a profile says it."""
        return self.bootstrap or self.stored().bootstrap

    @property
    def kafka_address(self) -> str:
        return self.given_bootstrap() or DEFAULT_BOOTSTRAP

    @property
    def admin_address(self) -> str:
        return self.admin or self.stored().admin or DEFAULT_ADMIN

    def stored(self) -> Profile:
        """The profile that counts, empty if there is none."""
        from posthouse.cli.profiles import Profile, load_profiles, profiles_file

        if self.profile is None and (self.bootstrap or self.admin):
            return Profile()
        profiles = load_profiles(profiles_file())
        name = self.profile or profiles.current
        return Profile() if name is None else profiles.named(name)

    def security(self, *, ask: bool = True) -> Security:
        """The security settings. Prompts for a missing password if there is a terminal."""
        from posthouse.client.security import SaslMechanism, Security

        stored = self.stored()
        user = self.user or stored.user
        password = self._password(user, stored)
        if user and not password and ask and sys.stdin.isatty() and sys.stderr.isatty():
            from posthouse.cli.passwords import ask_password

            password = self.password = ask_password(f"Password of {user}: ")
        # A certificate belongs to its key: both are of the same place.
        key = self.key if self.certificate else self.key or stored.key
        return Security(
            tls=self.tls or bool(stored.tls),
            ca=self.ca or stored.ca,
            certificate=self.certificate or stored.certificate,
            key=key,
            user=user,
            password=password,
            mechanism=SaslMechanism.parse(self.mechanism or stored.mechanism or SaslMechanism.SCRAM_SHA_256),
        )

    def _password(self, user: str | None, stored: Profile) -> str:
        from posthouse.client.security import password_in

        if self.password_file is not None:
            return password_in(self.password_file)
        if self.password:
            return self.password
        if stored.password_file is not None and user == stored.user:
            return password_in(stored.password_file)
        return ""
