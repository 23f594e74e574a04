"""An authenticated principal."""

from dataclasses import dataclass

_KIND = "User:"


@dataclass(frozen=True, slots=True)
class Principal:
    name: str

    def __str__(self) -> str:
        """In the form of ACLs."""
        return _KIND + self.name

    @classmethod
    def parse(cls, text: str) -> "Principal":
        if not text.startswith(_KIND) or text == _KIND:
            raise ValueError(f"{text!r} is not a principal; write User:NAME, or User:* for all users")
        return cls(text.removeprefix(_KIND))


ANONYMOUS = Principal("ANONYMOUS")
"""All clients, if login is not required."""
EVERYBODY = Principal("*")
"""In ACLs: every authenticated user."""
