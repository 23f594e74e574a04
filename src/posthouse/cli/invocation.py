"""One call of the program: where the broker is, and how much to say when something fails."""

from dataclasses import dataclass

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(slots=True)
class Invocation:
    """The options in front of the command fill it in."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    debug: bool = False
