"""Every kind of fault of a cluster, with the workloads that it strikes and its control."""

from tests.torture.campaign import MakeWorkload
from tests.torture.catalogue import LOST, Control, Entry, workload
from tests.torture.cluster.breaking import (
    Clinging,
    DroppingRecipe,
    ForgetfulRecipe,
    HastyClockJump,
    HastyRecipe,
    Unfenced,
    changed_to,
)
from tests.torture.cluster.cutting import DatabaseCut
from tests.torture.cluster.kinds import (
    BrokerClockJump,
    BrokerKill,
    BrokerPause,
    DatabaseFailover,
    DatabaseKill,
    ObjectFaults,
    ScopeMove,
)
from tests.torture.cluster.two_holders import TwoHolders
from tests.torture.everything import Everything
from tests.torture.queues.workload import QueueWorkload
from tests.torture.stream.workload import StreamWorkload

ON_OBJECTS = workload(latency="object")


def fed_queues() -> MakeWorkload:
    return lambda recorder, random: QueueWorkload(recorder, random, is_fed=True)


FED_QUEUES = fed_queues()
_ALL = (StreamWorkload, FED_QUEUES, ON_OBJECTS)
_ROUNDS = 10
_HASTY = changed_to(HastyRecipe)
BOTH_WRITE = f"precommitted read|poll skip|went back|ack came back|lost message|{LOST}"
"""What two coordinators do to transactions, offsets of groups, and queues."""
TWO_SERVE = "ack came back|lost message|unmarked redelivery"
"""What two brokers do to the queues that both of them serve."""
_REPEATED = "more than once|and also at|precommitted read"
"""What a commit that counts twice does: records are there twice, or a transaction ends too early."""

ENTRIES = (
    Entry(BrokerKill, Control(lambda: BrokerKill(_HASTY), LOST), workloads=_ALL, rounds=_ROUNDS),
    Entry(
        BrokerPause,
        Control(Unfenced, BOTH_WRITE, Everything),
        workloads=_ALL,
        rounds=_ROUNDS,
    ),
    Entry(
        TwoHolders,
        Control(lambda: TwoHolders(is_checked=False), BOTH_WRITE, Everything),
        workloads=_ALL,
        rounds=_ROUNDS,
    ),
    Entry(
        ScopeMove,
        Control(Clinging, TWO_SERVE, FED_QUEUES),
        workloads=(FED_QUEUES, StreamWorkload, Everything),
        rounds=_ROUNDS,
    ),
    Entry(DatabaseKill, Control(lambda: DatabaseKill(_HASTY), LOST), workloads=_ALL, rounds=_ROUNDS),
    Entry(DatabaseFailover, Control(lambda: DatabaseFailover(_HASTY), LOST), workloads=_ALL, rounds=_ROUNDS),
    Entry(
        DatabaseCut,
        Control(lambda: DatabaseCut(changed_to(ForgetfulRecipe), after_commits=True), _REPEATED),
        workloads=_ALL,
        rounds=_ROUNDS,
    ),
    Entry(
        ObjectFaults,
        Control(
            lambda: ObjectFaults(changed_to(DroppingRecipe)),
            f"CORRUPT_MESSAGE|KAFKA_STORAGE_ERROR|{LOST}",
            ON_OBJECTS,
        ),
        workloads=(ON_OBJECTS,),
        rounds=_ROUNDS,
    ),
    Entry(
        BrokerClockJump,
        Control(HastyClockJump, LOST),
        workloads=(StreamWorkload, FED_QUEUES),
        rounds=_ROUNDS,
    ),
)
BY_NAME = {entry.name: entry for entry in ENTRIES}
