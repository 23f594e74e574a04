"""URLs of services that the broker uses: a database, an object store. They may contain a password."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[\w.%-]*)(?::\d*)?"
_CLEAN = re.compile(
    rf"(?P<scheme>[a-z0-9]+)://(?:(?P<user>[^@:/?#\s]*)(?::[^@/?#]*)?@)?"
    rf"(?P<place>{_HOST}(?:,{_HOST})*(?:/[^@?#]*)?)(?:\?[^@#]*)?"
)
"""An address in which all readers find the password in the same place. In others, such as one whose password
contains a / or a #, a part of the password may seem to be the host or the path."""


@dataclass(frozen=True, slots=True, repr=False)
class ServiceUrl:
    """A URL. Its text for people has no password and no parameters, which may contain one. It is only the
    scheme if it is not clear where the password ends."""

    url: str

    @classmethod
    def database(cls, text: str) -> "ServiceUrl":
        return cls._of(text, ("postgresql", "postgres"), "postgresql://USER@HOST:5432/DATABASE")

    @classmethod
    def objects(cls, text: str) -> "ServiceUrl":
        return cls._of(text, ("s3", "file"), "s3://BUCKET/PREFIX or file:///DIRECTORY")

    @classmethod
    def _of(cls, text: str, schemes: tuple[str, ...], example: str) -> "ServiceUrl":
        try:
            scheme = urlsplit(text).scheme
        except ValueError:
            scheme = ""
        if scheme not in schemes or "://" not in text:
            raise ValueError(f"the address must have the form {example}")  # the text may contain a password
        return cls(text)

    def __str__(self) -> str:
        parts = _CLEAN.fullmatch(self.url)
        if parts is None:
            return f"{self.url.partition('://')[0]}://…"
        login = "" if parts["user"] is None else f"{parts['user']}@"
        return f"{parts['scheme']}://{login}{parts['place']}"

    def __repr__(self) -> str:
        return f"ServiceUrl({str(self)!r})"
