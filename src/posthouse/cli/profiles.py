"""Named profiles: where a broker is and how to log in, so that options need not be repeated.

They are in `posthouse/profiles.toml` under the user's directory for settings ($XDG_CONFIG_HOME, ~/.config):

    current = "prod"

    [profiles.prod]
    bootstrap = "broker.example:9093"
    user = "alice"
    password_file = "/home/alice/.posthouse-password"
    ca = "/etc/ssl/our-ca.pem"

A password is never stored, only the name of the file that holds it. The file is replaced as a whole, and
only its owner may read it.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from posthouse.client.addresses import parse_bootstrap
from posthouse.client.admin_client import AdminClient
from posthouse.client.errors import BadArgument
from posthouse.client.security import SaslMechanism

_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile does not say is None."""

    bootstrap: str | None = None
    admin: str | None = None
    tls: bool | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    mechanism: str | None = None

    def check(self) -> None:
        """Raises BadArgument for an address or a mechanism that is none. Files may be made later."""
        if self == Profile():
            raise BadArgument("the profile would say nothing; give --bootstrap, --admin or a login")
        if self.bootstrap is not None:
            parse_bootstrap(self.bootstrap)
        if self.admin is not None:
            AdminClient(self.admin).close()
        if self.mechanism is not None:
            SaslMechanism.parse(self.mechanism)

    def items(self) -> dict[str, str | bool]:
        """What it says, as it is stored."""
        said = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: str(value) if isinstance(value, Path) else value for name, value in said.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    by_name: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None
    """The one that counts where none is named."""

    def named(self, name: str) -> Profile:
        """Raises BadArgument."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none yet"
            raise BadArgument(
                f"there is no profile {name!r} (there are: {known}); make one with 'posthouse profile create'"
            )
        return self.by_name[name]

    def with_profile(self, name: str, profile: Profile) -> "Profiles":
        if not _NAME.fullmatch(name):
            raise BadArgument(f"{name!r} cannot name a profile; use letters, digits, '_' and '-'")
        return replace(self, by_name={**self.by_name, name: profile})

    def without(self, name: str) -> "Profiles":
        self.named(name)
        left = {each: profile for each, profile in self.by_name.items() if each != name}
        return Profiles(by_name=left, current=None if self.current == name else self.current)

    def using(self, name: str | None) -> "Profiles":
        if name is not None:
            self.named(name)
        return replace(self, current=name)


def profiles_file(environment: Mapping[str, str] = os.environ) -> Path:
    # The specification of XDG says that a relative path is to be ignored.
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".config") / "posthouse" / "profiles.toml"


def load_profiles(file: Path) -> Profiles:
    """Raises BadArgument where the file is not what `save_profiles` writes."""
    try:
        document = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return Profiles()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadArgument(f"{file} is not valid TOML ({error}); correct it, or delete it") from None
    tables = document.get("profiles", {})
    current = document.get("current")
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise BadArgument(f"{file} holds no profiles; correct it, or delete it")
    return Profiles(
        by_name={name: _profile(file, name, table) for name, table in tables.items()}, current=current
    )


def save_profiles(file: Path, profiles: Profiles) -> None:
    lines = ["# Written by 'posthouse profile'."]
    if profiles.current is not None:
        lines.append(f"current = {_written(profiles.current)}")
    for name, profile in sorted(profiles.by_name.items()):
        lines += ["", f"[profiles.{name}]"]
        lines += [f"{key} = {_written(value)}" for key, value in profile.items().items()]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(f".{os.getpid()}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    new.replace(file)


_KINDS = {each.name: each.type for each in fields(Profile)}


def _profile(file: Path, name: str, table: Any) -> Profile:
    if not isinstance(table, dict):
        raise BadArgument(f"{file}: profile {name!r} is no table; correct it, or delete it")
    values: dict[str, Any] = {}
    for key, value in table.items():
        kind = _KINDS.get(key)
        if kind is None:
            raise BadArgument(f"{file}: profile {name!r} has an unknown key {key!r}; delete it")
        if not isinstance(value, bool if kind == bool | None else str):
            raise BadArgument(f"{file}: {key} of profile {name!r} has the wrong type; correct it")
        values[key] = Path(str(value)) if kind == Path | None else value
    return Profile(**values)


def _written(value: str | bool) -> str:
    """As TOML; what JSON escapes in a string TOML escapes in the same way, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
