"""Which of librdkafka's tests are run, how, and which are left out: librdkafka_tests.toml."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.conformance.scenarios import ADMIN, COMPACTION, DEFAULT, LOGINS, NO_AUTO_CREATION, TLS
from tools.conformance.workspace import SetupError

LIST = Path(__file__).with_name("librdkafka_tests.toml")
PROTOCOL_VERSION = "4.2.0"

_DECLARATION = re.compile(r"_TEST\(\s*(\d{4}_\w+),\s*([\w |]+?)\s*[,)]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tests that the runner starts together, because it selects by number only."""

    number: str
    tests: tuple[str, ...]
    scenario: str = DEFAULT
    """The broker: see scenarios.py."""
    sockem: bool = False
    """Whether they go through librdkafka's emulation of bad networks."""
    protocol: str = "classic"
    """The consumer group protocol of those consumers that do not choose one."""
    version: str = PROTOCOL_VERSION
    """The Kafka that the tests believe to be talking to."""
    java: bool = False
    """Whether a Java program takes part."""
    patience: int = 1
    """By what its timeouts are multiplied."""
    part: str = ""
    """The one function of the test that is to run."""

    @property
    def id(self) -> str:
        """Unlike that of any other batch, and fit for a file name."""
        return "-".join(each for each in (self.number, self.scenario, self.protocol, self.part) if each)

    @property
    def group(self) -> str:
        if self.protocol != "classic":
            return f"tests again, with the {self.protocol} protocol"
        return f"parts of {self.tests[0]}" if self.part else "tests"

    def label(self, test: str) -> str:
        name = f"{test}:{self.part.removeprefix('do_test_')}" if self.part else test
        return name if self.protocol == "classic" else f"{name} [{self.protocol}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestList:
    __test__ = False  # pytest collects classes that are called Test…

    batches: tuple[Batch, ...]
    excluded: dict[str, str]

    @classmethod
    def load(cls) -> "TestList":
        content = tomllib.loads(LIST.read_text())
        broker = content["broker"]
        batches = [
            *_batches(broker["default"]),
            *_batches(broker[COMPACTION], scenario=COMPACTION),
            *_batches(broker[LOGINS], scenario=LOGINS),
            *_batches(broker[TLS], scenario=TLS),
            *_batches(broker["java"], java=True),
            *_batches(broker["sockem"], sockem=True),
            *_batches(broker[NO_AUTO_CREATION], scenario=NO_AUTO_CREATION),
            *_parts(broker["parts"], DEFAULT),
            *_parts(broker["parts_admin"], ADMIN),
            # A silent member is missed after 45 s, as in Kafka; one test waits for 30 s only.
            *_batches(broker["consumer_protocol"], protocol="consumer", patience=2),
            *_batches(broker["share_consumers"], patience=2),
        ]
        batches.sort(key=lambda batch: not set(batch.tests) & set(broker["first"]))
        return cls(batches=tuple(batches), excluded=content["excluded"])

    def check_complete(self, tests: Path) -> None:
        """Every test that the suite declares must be listed: a new version may bring new ones."""
        declared = dict(_DECLARATION.findall((tests / "test.c").read_text()))
        needing_broker = {name for name, flags in declared.items() if "TEST_F_LOCAL" not in flags}
        listed = {test for batch in self.batches for test in batch.tests} | set(self.excluded)
        if needing_broker - listed:
            raise SetupError(f"{LIST.name} does not mention {', '.join(sorted(needing_broker - listed))}")
        if listed - set(declared):
            raise SetupError(f"{LIST.name} names unknown tests {', '.join(sorted(listed - set(declared)))}")


def _batches(names: list[str], **how: Any) -> Iterator[Batch]:
    for number in sorted({name[:4] for name in names}):
        yield Batch(number=number, tests=tuple(name for name in names if name.startswith(number)), **how)


def _parts(tests: dict[str, list[str]], scenario: str) -> Iterator[Batch]:
    for test, parts in tests.items():
        for part in parts:
            yield Batch(number=test[:4], tests=(test,), part=part, scenario=scenario)
