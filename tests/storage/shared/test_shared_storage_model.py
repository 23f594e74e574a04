"""The shared storage against a plain model of a log, with restarts, takeovers and housekeeping."""

from contextlib import ExitStack

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import make_topic
from tests.storage.log_machine import LogMachine
from tests.storage.shared.opened import make_shared

_UPKEEP = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=0, mixed_bytes=500, segment_bytes=400, fetch_bytes=300)
)
"""All that waits is consolidated, in small steps."""


class SharedMachine(LogMachine):
    storage: SharedStorage

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.database = Database(self.stack.enter_context(new_database(server, MIGRATED)))
        self.objects = MemoryObjectStore(self.clock)

    def make_storage(self) -> SharedStorage:
        """For a broker that has just taken the lease."""
        made = make_shared(
            self.database,
            self.objects,
            self.clock,
            tail_bytes=self.tail_bytes,
            inline_bytes=self.inline_bytes,
            upkeep=_UPKEEP,
        )
        return self.run(made)

    @initialize(
        tail_bytes=st.sampled_from([0, 300, 2**20]),
        inline_bytes=st.sampled_from([100, 2**19]),
        segment_bytes=st.sampled_from(["14", "200", "500"]),
        interval=st.sampled_from(["0", "64", "4096"]),
        latency=st.sampled_from(["inline", "object"]),
    )
    def begin(
        self, tail_bytes: int, inline_bytes: int, segment_bytes: str, interval: str, latency: str
    ) -> None:
        self.tail_bytes = tail_bytes
        self.inline_bytes = inline_bytes
        topic = make_topic(
            partitions=3, segment_bytes=segment_bytes, index_interval_bytes=interval, latency=latency
        )
        self.open_new(self.make_storage(), topic)

    @rule()
    def restart(self) -> None:
        self.run(self.storage.close())
        self.settle()
        self.open_again(self.make_storage())

    @rule()
    def crash(self) -> None:
        """Another broker takes over and nothing is outstanding: exactly what was acknowledged is there.

        The old storage is closed only afterwards, to free its connections: nothing of it may count any more.
        """
        self.settle()
        old = self.storage
        self.open_again(self.make_storage())
        self.run(old.close())

    @rule()
    def crash_twice(self) -> None:
        self.crash()
        self.crash()

    @rule()
    def keep_house(self) -> None:
        """Consolidation, slots, removal of what is deleted, and garbage collection, beside commits."""

        async def all_parts() -> None:
            assert self.storage._upkeep is not None
            for each in (self.storage.log_scopes, self.storage._upkeep):
                for part in each._housekeeping._parts:
                    await part.run_once()

        self.run(all_parts())

    def teardown(self) -> None:
        super().teardown()
        self.stack.close()


def test_a_shared_storage_is_like_the_model(postgres: PostgresServer) -> None:
    class Machine(SharedMachine):
        def __init__(self) -> None:
            super().__init__(postgres)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=8,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # An example takes a second or two, so making a failing one smaller would take minutes.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
