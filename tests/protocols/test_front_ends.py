"""What is declared once about a protocol, and what follows from it."""

from dataclasses import fields
from pathlib import Path

import pytest

import posthouse.protocols
from posthouse.app import App
from posthouse.listener_settings import (
    Address,
)
from posthouse.model.errors import InvalidConfig
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.service_url import ServiceUrl
from posthouse.settings import Authentication, Settings, listener_names
from posthouse.testing import AsyncBroker

ANY_PORT = Address("127.0.0.1", 0)


def packages() -> set[str]:
    """A package with two protocols has one of them in a package of its own."""
    [folder] = posthouse.protocols.__path__
    found = [each.parent.relative_to(folder) for each in Path(folder).glob("**/front_end.py")]
    return {"_".join(each.parts) for each in found if each.parts}


def test_every_protocol_package_is_served() -> None:
    assert {each.protocol.name for each in FRONT_ENDS} == packages()


def test_every_listener_setting_is_of_a_front_end() -> None:
    everything = Settings(
        kafka_tls=ANY_PORT,
        amqp_tls=ANY_PORT,
        admin_tls=ANY_PORT,
        rocketmq=ANY_PORT,
        rocketmq_grpc=ANY_PORT,
    ).listeners
    names = listener_names(Settings, with_tls=True, with_optional=True)
    assert [each.name for each in everything] == names
    assert {each.protocol for each in everything} == {each.protocol for each in FRONT_ENDS}


def test_every_address_in_the_settings_is_a_listener_or_advertised() -> None:
    """An address that is declared as another setting would be neither served nor checked; peer is for
    brokers."""
    addresses = {each.name for each in fields(Settings) if "Address" in str(each.type)}
    listeners = set(listener_names(Settings, with_tls=True, with_optional=True))
    assert addresses - listeners == {
        "kafka_advertised",
        "kafka_tls_advertised",
        "peer",
        "peer_advertised",
        "rocketmq_advertised",
    }


def test_rocketmq_with_logins() -> None:
    Settings(rocketmq=ANY_PORT, rocketmq_grpc=ANY_PORT, authentication=Authentication.REQUIRED).check()


def test_where_rocketmq_is_not_served() -> None:
    database, objects = ServiceUrl.database("postgresql://h/d"), ServiceUrl.objects("file:///objects")
    with pytest.raises(
        InvalidConfig, match="served by a broker that is alone: with --database, turn rocketmq off"
    ):
        Settings(rocketmq=ANY_PORT, database=database, objects=objects).check()


def test_a_listener_that_no_front_end_serves() -> None:
    only_amqp = [each for each in FRONT_ENDS if each.protocol.name == "amqp"]
    with pytest.raises(InvalidConfig, match="kafka is set, but this broker does not serve Kafka"):
        App(Settings(memory=True, kafka=ANY_PORT, amqp=ANY_PORT), front_ends=only_amqp)


async def test_what_people_are_told() -> None:
    async with AsyncBroker() as broker:
        assert broker.app.descriptions == [
            f"Kafka clients on {broker.kafka}",
            f"RabbitMQ clients on amqp://guest:guest@{broker.amqp}",
            f"operators and metrics on http://{broker.admin}",
        ]
    async with AsyncBroker(kafka=None, amqp=None, admin=None, rocketmq=ANY_PORT) as broker:
        assert broker.app.descriptions == [
            f"RocketMQ clients on {broker.address('rocketmq')} (name server and broker)"
        ]
    async with AsyncBroker(users={"ann": "secret"}, kafka=None, admin=None) as broker:
        assert broker.app.descriptions == [f"RabbitMQ clients on amqp://{broker.amqp}"]
