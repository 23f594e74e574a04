"""Who somebody is, once that is known."""

from dataclasses import dataclass

_KIND = "User:"


@dataclass(frozen=True, slots=True)
class Principal:
    name: str

    def __str__(self) -> str:
        """As lists of permissions write it."""
        return _KIND + self.name

    @classmethod
    def parse(cls, text: str) -> "Principal":
        if not text.startswith(_KIND) or text == _KIND:
            raise ValueError(f"{text!r} is nobody; write User:NAME, or User:* for everybody")
        return cls(text.removeprefix(_KIND))


ANONYMOUS = Principal("ANONYMOUS")
"""Everybody, while nobody has to log in."""
EVERYBODY = Principal("*")
"""In permissions: whoever has logged in."""
