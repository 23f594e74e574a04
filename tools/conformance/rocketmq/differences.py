"""Which answers differ from those of RocketMQ, and why: `differences.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("differences.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    theirs: str
    """The code of RocketMQ's answer."""
    own: str
    why: str


def known_differences(suite: str) -> dict[str, Difference]:
    """By the name of the step."""
    listed: dict[str, list[str]] = tomllib.loads(FILE.read_text()).get(suite, {})
    return {name: Difference(theirs=theirs, own=own, why=why) for name, (theirs, own, why) in listed.items()}
