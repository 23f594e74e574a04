"""Clients of RabbitMQ's management API from PyPI, unmodified: AMQPStorm's and pyrabbit2."""

from collections.abc import Iterator

import pytest
from amqpstorm.connection import Connection
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiError
from amqpstorm.message import Message
from pyrabbit2.api import Client  # type: ignore[import-untyped]
from pyrabbit2.http import HTTPError  # type: ignore[import-untyped]

from posthouse.listener_settings import Address
from posthouse.testing import ThreadBroker

USER = PASSWORD = "guest"
"""Without logins, AMQP clients have to be this one."""


@pytest.fixture(scope="module", params=[False, True], ids=["open", "with a login"])
def broker(request: pytest.FixtureRequest) -> Iterator[ThreadBroker]:
    with ThreadBroker(users={USER: PASSWORD} if request.param else None) as running:
        yield running


@pytest.fixture
def storm(broker: ThreadBroker) -> ManagementApi:
    return ManagementApi(f"http://{broker.admin}", USER, PASSWORD)


@pytest.fixture
def rabbit(broker: ThreadBroker) -> Client:
    return Client(broker.admin, USER, PASSWORD)


def test_amqpstorm_declares_publishes_and_gets(storm: ManagementApi) -> None:
    storm.queue.declare("s-q", durable=True, arguments={"x-max-length": 5})
    storm.exchange.declare("s-x", exchange_type="topic", durable=True)
    storm.queue.bind(queue="s-q", exchange="s-x", routing_key="key")
    assert [each["source"] for each in storm.queue.bindings("s-q")] == ["", "s-x"]
    sent = storm.basic.publish("hello", "key", exchange="s-x", properties={"headers": {"count": 3}})
    assert sent == {"routed": True}
    [message] = storm.basic.get("s-q", requeue=True)
    assert isinstance(message, Message)
    assert (message.body, message.properties["headers"]) == ("hello", {"count": 3})
    assert storm.queue.get("s-q")["messages"] == 1
    assert [each["name"] for each in storm.queue.list(name="^s-.$", use_regex=True)] == ["s-q"]
    storm.queue.purge("s-q")
    storm.queue.unbind(queue="s-q", exchange="s-x", routing_key="key")
    storm.queue.delete("s-q")
    storm.exchange.delete("s-x")
    with pytest.raises(ApiError, match="NOT-FOUND"):
        storm.queue.get("s-q")


def test_amqpstorm_sees_and_closes_a_connection(storm: ManagementApi, broker: ThreadBroker) -> None:
    where = Address.parse(broker.amqp)
    with Connection(where.host, USER, PASSWORD, port=where.port) as connection:
        connection.channel()
        [found] = storm.connection.list()
        [channel] = storm.channel.list()
        assert (found["user"], storm.channel.get(channel["name"])["number"]) == (USER, 1)
        storm.connection.close(found["name"], "enough")


def test_amqpstorm_asks_how_the_broker_is(storm: ManagementApi) -> None:
    assert storm.aliveness_test("/") == {"status": "ok"}
    assert storm.healthchecks.get() == {"status": "ok"}
    assert storm.overview()["product_name"] == "Posthouse"
    [node] = storm.nodes()
    assert storm.node(node["name"])["running"] is True
    assert storm.virtual_host.get("/")["name"] == "/"


def test_amqpstorm_manages_users(storm: ManagementApi) -> None:
    storm.user.create("s-user", "password", tags="management")
    storm.user.set_permission("s-user", "/", configure_regex="^$", write_regex="^a$", read_regex=".*")
    assert storm.user.get_permission("s-user", "/")["write"] == "^a$"
    assert "s-user" in [each["name"] for each in storm.user.list()]
    storm.user.delete_permission("s-user", "/")
    storm.user.delete("s-user")


def test_pyrabbit2_declares_publishes_and_gets(rabbit: Client) -> None:
    assert rabbit.is_alive()
    rabbit.create_exchange("/", "p-x", "direct")
    rabbit.create_queue("/", "p-q", durable=True)
    rabbit.create_binding("/", "p-x", "p-q", "key")
    assert rabbit.publish("/", "p-x", "key", "hello")
    [message] = rabbit.get_messages("/", "p-q", requeue=True)
    assert message["payload"] == "hello"
    assert rabbit.get_queue_depth("/", "p-q") == 1
    assert "p-q" in [each["name"] for each in rabbit.get_queues()]
    rabbit.purge_queue("/", "p-q")
    rabbit.delete_binding("/", "p-x", "p-q", "key")
    rabbit.delete_queue("/", "p-q")
    rabbit.delete_exchange("/", "p-x")
    with pytest.raises(HTTPError, match="404"):
        rabbit.get_queue("/", "p-q")


def test_pyrabbit2_reads_the_rest(rabbit: Client) -> None:
    assert rabbit.get_vhost_names() == ["/"]
    assert rabbit.get_cluster_name() == {"name": "posthouse"}
    assert rabbit.get_overview()["object_totals"]["queues"] == 0
    for ask in (rabbit.get_nodes, rabbit.get_exchanges, rabbit.get_bindings, rabbit.get_users):
        assert isinstance(ask(), list)
    for ask in (rabbit.get_connections, rabbit.get_channels, rabbit.get_permissions, rabbit.get_extensions):
        assert isinstance(ask(), list)
    assert rabbit.get_definitions()["queues"] == []
