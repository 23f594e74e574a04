"""Names that the broker makes up: of queues, consumers and reply addresses."""

import base64
from collections.abc import Callable
from typing import Final

RandomBytes = Callable[[int], bytes]

GENERATED: Final = "amq.gen-"
"""How the names of queues begin that the broker has named. Clients cannot declare such names."""


class ServerNames:
    def __init__(self, random: RandomBytes) -> None:
        self._random = random

    def token(self) -> str:
        """22 random characters, with 128 bits."""
        return base64.urlsafe_b64encode(self._random(16)).rstrip(b"=").decode()

    def queue(self) -> str:
        return GENERATED + self.token()

    def consumer(self) -> str:
        return f"amq.ctag-{self.token()}"
