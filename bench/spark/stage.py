"""What a run needs around its contests: a broker, a directory, sessions that start when they are needed."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from bench.processes import Served, broker
from bench.spark.sessions import Session, SessionFailed, Setup, running

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_NOT_FOUND = re.compile(r"unresolved dependency: (\S+): not found")

OURS = Setup(name="recommended")
PURE = Setup(name="pure", environment={"POSTHOUSE_PURE": "1"})
PLAIN = Setup(name="plain", recommended=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    small_rows: int
    """Of 100 B."""
    large_rows: int
    """Of 1 KiB."""
    rounds: int
    triggers: int
    """In each round."""


SCALES = {
    "quick": Scale(name="quick", small_rows=200_000, large_rows=40_000, rounds=3, triggers=5),
    "full": Scale(name="full", small_rows=3_000_000, large_rows=500_000, rounds=3, triggers=15),
}


@dataclass(slots=True, kw_only=True)
class Stage:
    scale: Scale
    served: Served
    directory: Path
    connector_version: str
    _stack: ExitStack
    _sessions: dict[str, Session] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)

    def session(self, setup: Setup) -> Session:
        """Raises SessionFailed, at the second time without trying again."""
        if setup.name in self._failed:
            raise SessionFailed(self._failed[setup.name])
        if setup.name not in self._sessions:
            try:
                self._sessions[setup.name] = self._stack.enter_context(running(setup, self.directory))
            except SessionFailed as error:
                self._failed[setup.name] = str(error)
                raise
        return self._sessions[setup.name]

    def connector(self) -> Session:
        """A session with Spark's own Kafka connector, fetched by Spark from Maven Central."""
        coordinates = f"{CONNECTOR}:{self.connector_version}"
        setup = Setup(name="connector", conf={"spark.jars.packages": coordinates})
        try:
            return self.session(setup)
        except SessionFailed:
            self._failed[setup.name] = self._why_no_connector(coordinates)
            raise SessionFailed(self._failed[setup.name]) from None

    @property
    def is_connector_of_this_release(self) -> bool:
        return self.connector_version == pyspark.__version__

    @property
    def connector_name(self) -> str:
        """Says so where it is not of the release that it runs on."""
        if self.is_connector_of_this_release:
            return "Spark's Kafka connector"
        return f"Spark's Kafka connector {self.connector_version}"

    def _why_no_connector(self, coordinates: str) -> str:
        log = (self.directory / "connector.log").read_text(errors="replace")
        absent = sorted({each.replace("#", ":").replace(";", ":") for each in _NOT_FOUND.findall(log)})
        if absent:
            return f"Spark asked Maven Central for {coordinates} and did not find {', '.join(absent)}"
        return f"Spark did not start with {coordinates}; is Maven Central in reach?"


@contextmanager
def staged(scale: Scale, connector_version: str) -> Iterator[Stage]:
    scratch = Path(".bench")
    scratch.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="posthouse-spark-", dir=scratch) as name,
        broker() as served,
        ExitStack() as stack,
    ):
        yield Stage(
            scale=scale,
            served=served,
            directory=Path(name).absolute(),
            connector_version=connector_version,
            _stack=stack,
        )
