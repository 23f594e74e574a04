"""A member follows what the coordinator changes: topics, users, permissions, quotas, settings."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.quotas import Entity, Quota
from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.broker.dynamic_settings import SettingScope
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import LoginFailed, StorageFull, UnknownTopic
from posthouse.model.ids import GroupId, new_topic_id
from posthouse.model.scopes import NAMESPACES
from posthouse.model.topics import Topic
from posthouse.settings import Authentication
from posthouse.storage.definition_changes import DefinitionChange
from posthouse.storage.spaces import Space
from tests.broker.members import Pair, pair, started

PEER = "127.0.0.1:1"
PASSWORD = "nobody-guesses-this"


async def created(brokers: Pair, name: str, **overrides: str) -> Topic:
    settings = {key.replace("_", "."): value for key, value in overrides.items()}
    [topic] = await brokers.coordinator.create_topics([NewTopic(name=name, partitions=2, overrides=settings)])
    assert isinstance(topic, Topic)
    return topic


def told(brokers: Pair, space: Space, state: Mapping[bytes, bytes]) -> None:
    """The member's storage tells of this content, whatever is stored."""
    for changed in brokers.member_storage._followers:
        changed(DefinitionChange(state={space: state}))


def logins(directory: Path) -> dict[str, Any]:
    file = directory / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    return {"authentication": Authentication.REQUIRED, "admin_password_file": file}


# Topics


async def test_topics_are_followed() -> None:
    async with pair() as brokers, started(brokers.member) as member:
        orders = await created(brokers, "orders")
        assert member.topics.find("orders") is None
        brokers.member_storage.follow()
        assert member.topic("orders") == orders == member.topic_by_id(orders.id)
        await brokers.coordinator.create_partitions("orders", 5)
        await brokers.coordinator.configure_topic("orders", lambda topic: {"retention.ms": "5"})
        await created(brokers, "bills")
        brokers.member_storage.follow()
        assert member.topic("orders").partitions == 5
        assert member.topic("orders").config.retention_ms == 5
        assert [topic.name for topic in member.topics] == ["bills", "orders"]


async def test_a_deleted_topic_is_gone_and_its_readers_wake() -> None:
    async with pair() as brokers:
        topic = await created(brokers, "orders")
        async with started(brokers.member) as member:
            waiting = asyncio.create_task(member.wait_for_records([(topic.partition(1), 0)], 1, 60.0))
            await asyncio.sleep(0)
            member.traffic["orders"].records_in = 3
            await brokers.coordinator.delete_topics([topic])
            brokers.member_storage.follow()
            async with asyncio.timeout(30):
                await waiting
            assert member.topics.find("orders") is None and "orders" in member.recent_deletions
            assert member.traffic.of("orders").records_in == 0


async def test_a_name_that_has_another_topic_by_now() -> None:
    async with pair() as brokers:
        first = await created(brokers, "orders")
        async with started(brokers.member) as member:
            await brokers.coordinator.delete_topics([first])
            second = await created(brokers, "orders")
            brokers.member_storage.follow()
            assert member.topic("orders").id == second.id != first.id


async def test_a_topic_is_asked_for_before_it_is_called_unknown() -> None:
    async with pair() as brokers, started(brokers.member) as member:
        orders = await created(brokers, "orders")
        assert await member.find_topic("orders") == orders
        assert await member.find_topic_by_id(orders.id) == orders
        assert brokers.member_storage.refreshes == 1, "a topic that is known is not asked for"
        with pytest.raises(UnknownTopic):
            await member.find_topic("bills")
        with pytest.raises(UnknownTopic):
            await member.find_topic_by_id(new_topic_id())


async def test_internal_topics_are_no_topics_of_clients() -> None:
    async with pair() as brokers, started(brokers.member) as member:
        internal = Topic(id=new_topic_id(), name=":internal", partitions=1, scope=NAMESPACES[0])
        await brokers.storage.create_topics([internal])
        with pytest.raises(UnknownTopic):
            await member.find_topic(":internal")
        assert internal.id in brokers.member_storage.topics


# Settings


async def test_defaults_of_topics_are_followed() -> None:
    async with pair() as brokers:
        await created(brokers, "plain")
        await created(brokers, "own", retention_ms="7")
        async with started(brokers.member) as member:
            change = brokers.coordinator.dynamic_settings.change
            await change(SettingScope.CLUSTER, lambda _: {"topic.retention.ms": "5"})
            brokers.member_storage.follow()
            later = await created(brokers, "later")
            brokers.member_storage.follow()
            topics = member.topics
            assert [topics.get(name).config.retention_ms for name in ("plain", "own", "later")] == [5, 7, 5]
            assert brokers.member_storage.topics[later.id].config.retention_ms == 5
            await change(SettingScope.CLUSTER, lambda _: {})
            brokers.member_storage.follow()
            assert topics.get("plain").config == member.settings.topic_defaults()


async def test_settings_of_groups_and_subscriptions_to_metrics_are_followed() -> None:
    group = GroupId("g")
    async with pair() as brokers, started(brokers.member) as member:
        await brokers.coordinator.group_configs.replace(group, {"consumer.session.timeout.ms": "50000"})
        await brokers.coordinator.metrics_subscriptions.change("all", lambda _: {"metrics": "*"})
        brokers.member_storage.follow()
        assert member.group_configs.overrides(group) == {"consumer.session.timeout.ms": "50000"}
        assert member.group_configs.get(group) != member.group_configs.defaults
        assert len(list(member.metrics_subscriptions)) == 1
        await brokers.coordinator.group_configs.replace(group, {})
        brokers.member_storage.follow()
        assert member.group_configs.get(group) == member.group_configs.defaults


# Access


async def test_permissions_and_quotas_are_followed(tmp_path: Path) -> None:
    async with pair(**logins(tmp_path)) as brokers, started(brokers.member) as member:
        guard = member.access.guard(Principal("ann"), PEER, "kafka")
        assert not guard.may(Operation.READ, Kind.TOPIC, "orders")
        acl = Acl(kind=Kind.TOPIC, name="orders", principal="User:ann", operation=Operation.READ)
        await brokers.coordinator.access.acls.add([acl])
        await brokers.coordinator.access.quotas.change(Entity("ann"), {Quota.READ: 10.0})
        brokers.member_storage.follow()
        assert guard.may(Operation.READ, Kind.TOPIC, "orders")
        assert member.access.quotas.take(Quota.READ, "ann", "tool", 20.0) == 1.0
        await brokers.coordinator.access.acls.remove(lambda each: True)
        await brokers.coordinator.access.quotas.change(Entity("ann"), {Quota.READ: None})
        brokers.member_storage.follow()
        assert not guard.may(Operation.READ, Kind.TOPIC, "orders")
        assert member.access.quotas.is_empty


async def test_a_user_who_is_unknown_or_has_a_new_password_is_asked_for_once(tmp_path: Path) -> None:
    async with pair(**logins(tmp_path)) as brokers, started(brokers.member) as member:
        users = brokers.coordinator.access.users
        await users.set_password("ann", "first password", iterations=MIN_ITERATIONS)
        await member.access.log_in("ann", "first password", PEER)
        await users.set_password("ann", "second password", iterations=MIN_ITERATIONS)
        await member.access.log_in("ann", "second password", PEER)
        assert brokers.member_storage.refreshes == 2
        with pytest.raises(LoginFailed):
            await member.access.log_in("ann", "first password", PEER)
        assert brokers.member_storage.refreshes == 3


async def test_users_who_are_known_log_in_while_the_database_is_away(tmp_path: Path) -> None:
    async with pair(**logins(tmp_path)) as brokers, started(brokers.member) as member:
        brokers.member_storage.failure = StorageFull("the database is away")
        await member.access.log_in("admin", PASSWORD, PEER)
        with pytest.raises(LoginFailed):
            await member.access.log_in("ann", PASSWORD, PEER)


async def test_sessions_end_if_their_user_is_changed_or_removed_at_another_broker(tmp_path: Path) -> None:
    async with pair(**logins(tmp_path)) as brokers:
        users = brokers.coordinator.access.users
        for name in ("ann", "ben", "cleo"):
            await users.set_password(name, PASSWORD, iterations=MIN_ITERATIONS)
        async with started(brokers.member) as member:
            left: list[str] = []
            for name in ("ann", "ben", "cleo"):
                member.access.sessions.enter(name, lambda name=name: left.append(name))  # type: ignore[misc]
            await users.delete("ann")
            await users.set_password("ben", "another password", iterations=MIN_ITERATIONS)
            brokers.member_storage.follow()
            assert sorted(left) == ["ann", "ben"]
            assert member.access.users.get("ann") is None


async def test_a_member_that_starts_before_the_secret_is_stored_learns_it(tmp_path: Path) -> None:
    settings = logins(tmp_path)
    async with pair(**settings) as brokers:
        secret = brokers.storage._state.pop(Space.SECRETS)
        async with started(brokers.member) as member:
            assert member.access.secret is None
            brokers.storage._state[Space.SECRETS] = secret
            brokers.member_storage.follow()
            taken = await brokers.coordinator.transactions.producer_ids.take("ann")
            assert not member.transactions.producer_ids.belongs_to(taken, "ben")


async def test_a_change_that_cannot_be_read_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as brokers, started(brokers.member) as member:
        acl = Acl(kind=Kind.TOPIC, name="orders", principal="User:ann", operation=Operation.READ)
        state = {Space.QUOTAS: {b"not json": b""}, Space.ACLS: {acl.key(): b""}}
        for changed in brokers.member_storage._followers:
            changed(DefinitionChange(state=state))
        assert list(member.access.acls) == [acl]
        assert "quotas: changes that another broker has made cannot be followed" in caplog.text


async def test_permissions_that_cannot_be_read_are_named_and_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as brokers, started(brokers.member) as member:
        acl = Acl(kind=Kind.TOPIC, name="orders", principal="User:ann", operation=Operation.READ)
        newer = acl.key().replace(b"read", b"peruse")
        no_text = acl.key().replace(b'"orders"', b"[7]")
        told(brokers, Space.ACLS, {newer: b"", acl.key(): b"", no_text: b"", b"\xff\n": b""})
        assert list(member.access.acls) == [acl]
        assert caplog.text.count("which is skipped") == 3
        assert "peruse" in caplog.text and r"\xff\n" in caplog.text


async def test_users_who_cannot_be_read_cannot_log_in_and_the_others_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(**logins(tmp_path)) as brokers:
        users = brokers.coordinator.access.users
        for name in ("ann", "ben"):
            await users.set_password(name, PASSWORD, iterations=MIN_ITERATIONS)
        async with started(brokers.member) as member:
            left: list[str] = []
            for name in ("ann", "ben"):
                member.access.sessions.enter(name, lambda name=name: left.append(name))  # type: ignore[misc]
            stored = dict(brokers.storage._state[Space.USERS])
            await users.set_password("cleo", PASSWORD, iterations=MIN_ITERATIONS)
            stored[b"cleo"] = brokers.storage._state[Space.USERS][b"cleo"]
            stored[b"ann"] = b'{"of a newer version": "with a key"}'
            told(brokers, Space.USERS, stored)
            assert left == ["ann"]
            assert {user.name for user in member.access.users} == {"admin", "ben", "cleo"}
            assert "users: " in caplog.text and "the entry ann, which is skipped" in caplog.text
            assert "with a key" not in caplog.text


async def test_settings_that_cannot_be_read_are_skipped() -> None:
    async with pair() as brokers, started(brokers.member) as member:
        good = b'{"consumer.session.timeout.ms": "50000"}'
        told(brokers, Space.GROUP_CONFIGS, {b"bad": b"7", b"worse": b"{", b"good": good})
        assert list(member.group_configs) == ["good"]
        told(brokers, Space.QUOTAS, {b"{}": b"{", Entity("ann").key(): b'{"consumer_byte_rate": 10.0}'})
        assert list(member.access.quotas) == [(Entity("ann"), {Quota.READ: 10.0})]
