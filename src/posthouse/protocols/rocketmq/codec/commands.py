"""A command: a request or the answer to one."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

RESPONSE: Final = 1
ONEWAY: Final = 2

ANSWER_LANGUAGE: Final = "JAVA"
ANSWER_VERSION: Final = 409
"""That of 4.9.8. Clients switch features on by the version in answers, POP among them."""


class Serialization(IntEnum):
    """How a header is written: the top byte of its length."""

    JSON = 0
    BINARY = 1


@dataclass(slots=True)
class Command:
    """Not frozen, as nothing that is made for each message: `__init__` would take 1.1 µs and not 0.15."""

    code: int
    """Cut to 16 bits where a binary header brought it: 200050 arrives as 3442."""
    opaque: int
    """What the answer to a request repeats; answers may come in any order."""
    flag: int = 0
    language: str = ANSWER_LANGUAGE
    """A name, or the number of an unknown one in decimal."""
    version: int = ANSWER_VERSION
    remark: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """The sender expects no answer, and would not understand one."""
        return self.flag & ONEWAY != 0

    def answer(
        self,
        code: int,
        *,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> "Command":
        """In the serialization of the request: a client reads no other."""
        return Command(
            code,
            self.opaque,
            RESPONSE,
            ANSWER_LANGUAGE,
            ANSWER_VERSION,
            remark,
            {} if fields is None else fields,
            body,
            self.serialization,
        )
