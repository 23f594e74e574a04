"""A client that signs its requests, as those of RocketMQ do."""

import hmac
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient


def signed(fields: Mapping[str, str], body: bytes, key: str, secret: str) -> dict[str, str]:
    """The fields with a signature."""
    content = {**fields, "AccessKey": key}
    text = "".join(content[name] for name in sorted(content)).encode()
    digest = hmac.digest(secret.encode(), text + body, "sha1")
    return {**content, "Signature": b64encode(digest).decode()}


class SignedClient(RemotingClient):
    key = ""
    secret = ""
    """Requests are not signed without one."""

    def _command(self, code: int, fields: Mapping[str, str | int] | None, body: bytes, flag: int) -> Command:
        command = super()._command(code, fields, body, flag)
        if self.secret:
            command.fields = signed(command.fields, body, self.key, self.secret)
        return command


@asynccontextmanager
async def signed_client_of(
    broker: AsyncBroker, key: str, secret: str, serialization: Serialization = Serialization.JSON
) -> AsyncIterator[SignedClient]:
    client = await SignedClient.open(broker.address("rocketmq"), serialization)
    client.key, client.secret = key, secret
    try:
        yield client
    finally:
        await client.close()
