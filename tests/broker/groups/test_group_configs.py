"""Settings that groups have of their own: what is allowed, what is kept, and what they change."""

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.groups.config import GROUP_CONFIG_KEYS, GroupConfig, default_config
from posthouse.broker.groups.configs import GroupConfigs
from posthouse.broker.groups.consumer_member import Beat
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidConfig, InvalidGroupId, UnknownMember
from posthouse.model.ids import GroupId, MemberId
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage

GROUP = GroupId("g")
MEMBER = MemberId("m")
DEFAULTS = default_config(Settings())

REFUSED = [
    ("consumer.session.timeout.ms", "44999"),
    ("consumer.session.timeout.ms", "60001"),
    ("consumer.heartbeat.interval.ms", "0"),
    ("consumer.heartbeat.interval.ms", "15001"),
    ("consumer.heartbeat.interval.ms", "often"),
    ("consumer.assignment.interval.ms", "-1"),
    ("share.session.timeout.ms", "1000"),
    ("share.heartbeat.interval.ms", "99"),
    ("share.record.lock.duration.ms", "999"),
    ("share.delivery.count.limit", "0"),
    ("share.delivery.count.limit", "65536"),
    ("share.partition.max.record.locks", "0"),
    ("share.renew.acknowledge.enable", "maybe"),
    ("streams.session.timeout.ms", "60001"),
    ("streams.num.standby.replicas", "3"),
    ("streams.initial.rebalance.delay.ms", "-1"),
    ("nonsense", "1"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_limits(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        DEFAULTS.with_overrides({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "60000"),
        ("consumer.heartbeat.interval.ms", "1000"),
        ("share.delivery.count.limit", "10"),
        ("share.record.lock.duration.ms", "3000"),
        ("share.renew.acknowledge.enable", "FALSE"),
        ("streams.num.standby.replicas", "2"),
    ],
)
def test_what_is_allowed(name: str, value: str) -> None:
    assert DEFAULTS.with_overrides({name: value}).text(name) == value.lower()


def test_every_default_is_allowed() -> None:
    for settings in (Settings(), Settings(group_session_ms=300, group_heartbeat_ms=5000)):
        defaults = default_config(settings)
        texts = {name: defaults.text(name) for name in GROUP_CONFIG_KEYS}
        assert defaults.with_overrides(texts) == defaults


def test_a_session_is_longer_than_the_time_between_reports() -> None:
    short = default_config(Settings(group_session_ms=9000))
    assert short.with_overrides({"consumer.heartbeat.interval.ms": "8999"})
    for kind in ("consumer", "share", "streams"):
        with pytest.raises(InvalidConfig, match=f"{kind}.session.timeout.ms must be above"):
            short.with_overrides({f"{kind}.heartbeat.interval.ms": "9000"})


async def stored(defaults: GroupConfig, storage: MemoryStorage, **overrides: str) -> None:
    configs = GroupConfigs(storage, defaults)
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    await configs.replace(GROUP, named)


async def test_stored_settings_are_brought_within_new_limits(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage(ManualClock())
    await storage.open()
    quick = default_config(Settings(group_session_ms=2000))
    await stored(quick, storage, consumer_session_timeout_ms="2500", share_isolation_level="read_committed")
    state = {b"g": b'{"consumer.session.timeout.ms": "2500", "share.isolation.level": "read_committed"}'}
    storage.take_state = lambda space, owner=None: dict(state)  # type: ignore[method-assign]
    configs = GroupConfigs(storage, DEFAULTS)
    configs.load()
    assert configs.get(GROUP).consumer_session_timeout_ms == 45_000
    assert configs.get(GROUP).share_isolation_level == "read_committed"
    assert configs.overrides(GROUP)["consumer.session.timeout.ms"] == "2500"
    assert "consumer.session.timeout.ms=2500 is outside the limits" in caplog.text
    state[b"g"] = b'{"gone.with.a.later.version": "1"}'
    configs = GroupConfigs(storage, DEFAULTS)
    configs.load()
    assert configs.get(GROUP) == DEFAULTS
    assert "its own settings are not used" in caplog.text


async def test_changes_start_from_what_is_stored() -> None:
    storage = MemoryStorage(ManualClock())
    await storage.open()
    configs = GroupConfigs(storage, DEFAULTS)
    with pytest.raises(InvalidGroupId):
        await configs.replace(GroupId(""), {})
    await configs.replace(GROUP, {"streams.num.standby.replicas": "1"})
    await configs.change(GROUP, lambda old: {**old, "share.delivery.count.limit": "3"})
    await configs.change(GROUP, lambda old: {}, validate_only=True)
    assert list(configs) == [GROUP]
    assert configs.get(GROUP).share_delivery_count_limit == 3
    assert configs.get(GROUP).streams_num_standby_replicas == 1
    await configs.replace(GROUP, {})
    assert list(configs) == []
    assert configs.get(GROUP) == DEFAULTS


class Members:
    """One member of a group whose partitions the broker assigns."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.broker = Broker(MemoryStorage(clock), Settings(memory=True), clock)

    def beat(self, epoch: int, name: MemberId = MEMBER) -> int:
        topics = frozenset({"t"}) if epoch == 0 else None
        return self.broker.groups.beat(GROUP, Beat(member=name, epoch=epoch, topics=topics)).epoch


async def test_a_group_has_its_own_session_timeout_and_assignment_interval() -> None:
    members = Members(ManualClock())
    broker, clock = members.broker, members.clock
    await broker.start()
    await broker.coordinate()
    try:
        await broker.create_topics([NewTopic(name="t", partitions=2)])
        epoch = members.beat(0)
        own = {"consumer.session.timeout.ms": "60000", "consumer.assignment.interval.ms": "5000"}
        await broker.group_configs.replace(GROUP, own)
        epoch = members.beat(epoch)
        clock.advance(50)
        broker.groups._registry._ring(GROUP)
        epoch = members.beat(epoch)
        members.beat(0, MemberId("other"))
        described = broker.groups.describe_consumer(GROUP)
        assert described.epoch == described.target_epoch
        broker.groups.beat(GROUP, Beat(member=MEMBER, epoch=epoch, topics=frozenset()))
        assert broker.groups.describe_consumer(GROUP).epoch > described.target_epoch
        assert broker.groups.describe_consumer(GROUP).target_epoch == described.target_epoch
        clock.advance(5)
        members.beat(epoch)
        described = broker.groups.describe_consumer(GROUP)
        assert described.epoch == described.target_epoch
        await broker.group_configs.replace(GROUP, {})
        epoch = broker.groups.describe_consumer(GROUP).members[0].epoch
        members.beat(epoch)
        clock.advance(46)
        broker.groups._registry._ring(GROUP)
        with pytest.raises(UnknownMember):
            members.beat(epoch)
    finally:
        await broker.stop()
