"""Every kind of fault of a network, with the workloads that it strikes and its control."""

from collections.abc import Sequence

from tests.torture.campaign import Kind, MakeWorkload
from tests.torture.catalogue import LOST, Control, Entry
from tests.torture.cluster.breaking import DroppingRecipe, HastyRecipe, changed_to
from tests.torture.cluster.catalogue import BOTH_WRITE, ON_OBJECTS, TWO_SERVE
from tests.torture.cluster.kind import Change, unchanged
from tests.torture.everything import Everything
from tests.torture.network.arena import DATABASE
from tests.torture.network.breaking import BlindRecipe, Clinging, Uncoordinated, Unfenced
from tests.torture.network.faults import (
    CutLink,
    FailedOverDatabase,
    IsolatedBroker,
    JumpedClock,
    KilledBroker,
    KilledDatabase,
    MovedScopes,
    NetworkFault,
    PausedBroker,
    PausedDatabase,
    RollingRestart,
    SlowLink,
    StoreAway,
)
from tests.torture.network.kind import NetworkKind

_ROUNDS = 10
_HASTY = changed_to(HastyRecipe)


def everything_on_objects() -> MakeWorkload:
    return lambda recorder, random: Everything(recorder, random, latency="object")


def kind(name: str, *faults: NetworkFault, change: Change = unchanged, lying: bool = False) -> NetworkKind:
    return NetworkKind(name, faults, change, has_lying_store=lying)


def _entry(name: str, faults: Sequence[NetworkFault], control: Control, *, lying: bool = False) -> Entry:
    def make() -> Kind:
        return kind(name, *faults, lying=lying)

    return Entry(
        make,
        control,
        needs_namespaces=True,
        needs_store=all(each.needs_store for each in faults),
        workloads=(Everything, everything_on_objects()),
        rounds=_ROUNDS,
    )


def _hasty(*faults: NetworkFault) -> Control:
    return Control(lambda: kind("hasty", *faults, change=_HASTY), LOST)


_CUT_FROM_DATABASE = CutLink(seconds=(7.0,), others=(DATABASE,))
_DEAF_DATABASE = CutLink(one_way=True, seconds=(7.0,), others=(DATABASE,))
_OF_DATABASE = (KilledDatabase(), PausedDatabase(), FailedOverDatabase())
_OF_BROKERS = (KilledBroker(), PausedBroker(), JumpedClock(), MovedScopes(), RollingRestart())
_OF_LINKS = (CutLink(), CutLink(one_way=True), IsolatedBroker(), SlowLink())
_ALL = (*_OF_BROKERS, *_OF_LINKS, *_OF_DATABASE, StoreAway())

ENTRIES = (
    _entry("net-kill", [KilledBroker()], _hasty(KilledBroker())),
    _entry("net-pause", [PausedBroker()], Control(Unfenced, BOTH_WRITE, Everything)),
    _entry("net-cut", [CutLink(), IsolatedBroker()], _hasty(_CUT_FROM_DATABASE)),
    _entry("net-one-way", [CutLink(one_way=True)], _hasty(_DEAF_DATABASE)),
    _entry("net-slow", [SlowLink()], _hasty(SlowLink(), KilledBroker())),
    _entry("net-database", _OF_DATABASE, _hasty(KilledDatabase())),
    _entry(
        "net-store",
        [StoreAway()],
        Control(
            lambda: kind("dropping", StoreAway(), change=changed_to(DroppingRecipe)),
            f"CORRUPT_MESSAGE|KAFKA_STORAGE_ERROR|{LOST}",
            ON_OBJECTS,
        ),
        lying=True,
    ),
    _entry("net-clock", [JumpedClock()], _hasty(JumpedClock(kills=1.0))),
    _entry("net-move", [MovedScopes()], Control(Clinging, TWO_SERVE, Everything)),
    _entry("rolling", [RollingRestart()], _hasty(RollingRestart(gently=False))),
    _entry("net-mixed", _ALL, _hasty(KilledBroker(), RollingRestart(gently=False)), lying=True),
)
MEMBER_CONTROLS = {
    "blind": Control(lambda: kind("blind", KilledBroker(), change=changed_to(BlindRecipe)), "NotVisible"),
    "uncoordinated": Control(Uncoordinated, "lost message", Everything),
}
"""Of promises that only brokers without the lease can break, which serve clients themselves."""
BY_NAME = {entry.name: entry for entry in ENTRIES}
