"""Consumers in RabbitMQ's management API: who sees whose."""

from dataclasses import replace
from typing import Final

import aio_pika
import httpx

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.testing import AsyncBroker

Q: Final = "/api/queues/%2F/q"


async def test_consumers_of_others_are_for_those_who_may_describe_the_cluster() -> None:
    users = {"admin": "secret", "ann": "password"}
    async with (
        AsyncBroker(users=users) as broker,
        httpx.AsyncClient(base_url=f"http://{broker.admin}", auth=("ann", "password")) as ann,
        await aio_pika.connect(f"amqp://admin:secret@{broker.amqp}/") as of_admin,
        await aio_pika.connect(f"amqp://ann:password@{broker.amqp}/") as of_ann,
    ):
        acl = Acl(kind=Kind.TOPIC, name="q", principal="User:ann", operation=Operation.READ)
        await (await of_admin.channel()).declare_queue("q", durable=True)
        await broker.app.broker.access.acls.add([acl])
        for connection, tag in ((of_admin, "his"), (of_ann, "hers")):
            queue = await (await connection.channel()).get_queue("q", ensure=False)
            await queue.consume(_hold, consumer_tag=tag)

        async def seen() -> list[set[tuple[str, str]]]:
            """Tag and user, in all answers that have consumers."""
            answers = [(await ann.get(f"/api/consumers{path}")).json() for path in ("", "/%2F")]
            described = (await ann.get(Q)).json()
            assert described["consumers"] == 2, "their number is no secret"
            answers.append(described["consumer_details"])
            return [
                {(each["consumer_tag"], each["channel_details"]["user"]) for each in answer}
                for answer in answers
            ]

        assert await seen() == [{("hers", "ann")}] * 3
        cluster = replace(acl, kind=Kind.CLUSTER, name=CLUSTER, operation=Operation.DESCRIBE)
        await broker.app.broker.access.acls.add([cluster])
        assert await seen() == [{("hers", "ann"), ("his", "admin")}] * 3


async def _hold(message: object) -> None:
    """Never acknowledge it."""
