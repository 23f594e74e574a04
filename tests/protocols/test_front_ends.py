"""What is declared once about a protocol, and what follows from it."""

from dataclasses import fields
from pathlib import Path

import pytest

import posthouse.protocols
from posthouse.app import App
from posthouse.listener_settings import Address
from posthouse.model.errors import InvalidConfig
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.settings import Settings, listener_names
from posthouse.testing import AsyncBroker

ANY_PORT = Address("127.0.0.1", 0)


def packages() -> set[str]:
    [folder] = posthouse.protocols.__path__
    return {each.parent.name for each in Path(folder).glob("*/front_end.py")}


def test_every_protocol_package_is_served() -> None:
    assert {each.protocol.name for each in FRONT_ENDS} == packages()


def test_every_listener_setting_is_of_a_front_end() -> None:
    everything = Settings(kafka_tls=ANY_PORT, amqp_tls=ANY_PORT, admin_tls=ANY_PORT).listeners
    assert [each.name for each in everything] == listener_names(Settings, with_tls=True)
    assert {each.protocol for each in everything} == {each.protocol for each in FRONT_ENDS}


def test_every_address_in_the_settings_is_a_listener_or_advertised() -> None:
    """An address that is declared as another setting would be neither served nor checked; peer is for
    brokers."""
    addresses = {each.name for each in fields(Settings) if "Address" in str(each.type)}
    listeners = set(listener_names(Settings, with_tls=True))
    assert addresses - listeners == {
        "kafka_advertised",
        "kafka_tls_advertised",
        "peer",
        "peer_advertised",
    }


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
    async with AsyncBroker(users={"ann": "secret"}, kafka=None, admin=None) as broker:
        assert broker.app.descriptions == [f"RabbitMQ clients on amqp://{broker.amqp}"]
