"""What is compared: the local engine, and the shared storage by latency and replication."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cluster.servers import Servers
from bench.scale.brokers import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    latency: str | None
    """Of its topics. None: the local engine."""
    has_standby: bool = False
    in_directory: bool = False
    """Its objects are files, even if there is a server for objects."""


LOCAL = Contender(name="local", latency=None)
INLINE = Contender(name="inline", latency="inline")
OBJECT = Contender(name="object", latency="object")
DIRECTORY = Contender(name="object in a directory", latency="object", in_directory=True)
INLINE_STANDBY = Contender(name="inline, synchronous standby", latency="inline", has_standby=True)
OBJECT_STANDBY = Contender(name="object, synchronous standby", latency="object", has_standby=True)
CONTENDERS = (LOCAL, INLINE, OBJECT, DIRECTORY, INLINE_STANDBY, OBJECT_STANDBY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where brokers find a storage: that of one contender, new and empty."""

    directory: Path
    database: str | None
    objects: str

    def broker(self, name: str = "a", settings: Mapping[str, object] | None = None) -> Broker:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        if self.database is None:
            return Broker(directory, settings)
        options = ["--database", self.database, "--objects", self.objects, "--broker-name", name]
        return Broker(directory, settings, storage=options)


@contextmanager
def place_of(contender: Contender, servers: Servers) -> Iterator[Place]:
    with ExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(dir=servers.directory))
        database = None
        if contender.latency is not None:
            database = stack.enter_context(servers.new_database(has_standby=contender.has_standby))
        objects = stack.enter_context(servers.new_objects(in_directory=contender.in_directory))
        yield Place(directory=Path(scratch), database=database, objects=objects)
