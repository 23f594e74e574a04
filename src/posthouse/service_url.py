"""URLs of services that the broker uses: a database, an object store. They may contain a password."""

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, repr=False)
class ServiceUrl:
    """A URL. Its text for people has no password and no parameters, which may contain one."""

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
        parts = urlsplit(self.url)
        login, at, place = parts.netloc.rpartition("@")
        return f"{parts.scheme}://{login.partition(':')[0]}{at}{place}{parts.path}"

    def __repr__(self) -> str:
        return f"ServiceUrl({str(self)!r})"
