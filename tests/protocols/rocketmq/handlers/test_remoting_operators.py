"""The broker, its cluster and its connections, as tools see them."""

import json

from posthouse import __version__
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient, client_of, group


async def test_the_cluster(broker: AsyncBroker, client: RemotingClient) -> None:
    answer = await client.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    found = json.loads(bytes(answer.body))
    assert found["clusterAddrTable"] == {"posthouse": ["posthouse"]}
    assert found["brokerAddrTable"]["posthouse"]["brokerAddrs"] == {"0": broker.address("rocketmq")}


async def test_the_state_of_the_broker(broker: AsyncBroker, client: RemotingClient) -> None:
    for body in (b"a", b"b"):
        assert (await client.send("t", body)).code == 0
    await client.messages("t")
    answer = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = json.loads(bytes(answer.body))["table"]
    assert table["brokerVersionDesc"] == f"Posthouse {__version__}"
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("2", "2")
    assert (table["brokerActive"], table["sendThreadPoolQueueSize"]) == ("true", "0")
    assert table["runtime"].startswith("[ 0 days, 0 hours, ")
    assert all(isinstance(value, str) for value in table.values())


async def test_the_settings_of_the_broker(broker: AsyncBroker, client: RemotingClient) -> None:
    answer = await client.request(RequestCode.GET_BROKER_CONFIG)
    lines = bytes(answer.body).decode().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert found["brokerName"] == "posthouse"
    assert broker.address("rocketmq") == f"{found['brokerIP1']}:{found['listenPort']}"
    assert found["autoCreateTopicEnable"] == "true"
    refused = await client.request(RequestCode.UPDATE_BROKER_CONFIG, None, b"maxMessageSize=1\n")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "posthouse config" in (refused.remark or "")


async def test_connections(broker: AsyncBroker, client: RemotingClient) -> None:
    consumers, producers = RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_PRODUCER_CONNECTION_LIST
    assert (await client.request(consumers, {"consumerGroup": "g"})).code == ResponseCode.CONSUMER_NOT_ONLINE
    assert (await client.request(producers, {"producerGroup": "p"})).code == ResponseCode.SYSTEM_ERROR
    async with client_of(broker) as other:
        assert (await other.beat("c", group("g", t="a"), producers=["p"])).code == 0
        found = json.loads(bytes((await client.request(consumers, {"consumerGroup": "g"})).body))
        [one] = found["connectionSet"]
        assert (one["clientId"], one["language"], one["version"]) == ("c", "GO", 317)
        assert one["clientAddr"].startswith("127.0.0.1:")
        assert found["subscriptionTable"]["t"]["subString"] == "a"
        assert found["consumeType"] == "CONSUME_PASSIVELY"
        assert found["messageModel"] == "CLUSTERING"
        found = json.loads(bytes((await client.request(producers, {"producerGroup": "p"})).body))
        assert found == {"connectionSet": [one]}


async def test_what_a_consumer_says_of_itself(broker: AsyncBroker, client: RemotingClient) -> None:
    ask = RequestCode.GET_CONSUMER_RUNNING_INFO
    fields = {"consumerGroup": "g", "clientId": "c", "jstackEnable": "false"}
    assert (await client.request(ask, fields)).code == ResponseCode.CONSUMER_NOT_ONLINE
    async with client_of(broker) as other:
        assert (await other.beat("c", group("g", t="a"))).code == 0
        assert (await other.pushed.get()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        answer = client.start(ask, {**fields, "AccessKey": "K", "Signature": "S"})
        asked = await other.pushed.get()
        assert (asked.code, asked.fields["consumerGroup"]) == (ask, "g")
        assert asked.fields.keys() == fields.keys(), "not with the signature of the one who asks"
        other.respond(asked, body=b'{"properties":{}}')
        assert bytes((await answer).body) == b'{"properties":{}}'
        answer = client.start(ask, fields)
        asked = await other.pushed.get()
        other.writer.close()
        assert (await answer).code == ResponseCode.SERVICE_NOT_AVAILABLE
