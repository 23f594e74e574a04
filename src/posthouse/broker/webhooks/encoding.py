"""Webhooks as storage has them, one entry for each in `Space.WEBHOOKS`:

key    name in ASCII
value  JSON object in UTF-8: the fields of `Webhook` but for its name; sealed secrets in Base64

A value is replaced as a whole. After a crash a webhook has all of its old definition or all of its new one.
"""

import msgspec

from posthouse.broker.webhooks.definition import Webhook
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space


def put(webhook: Webhook) -> Put:
    fields = msgspec.to_builtins(webhook)
    del fields["name"]
    return Put(Space.WEBHOOKS, webhook.name.encode(), msgspec.json.encode(fields))


def removal(name: str) -> Put:
    return Put(Space.WEBHOOKS, name.encode(), None)


def read(key: bytes, value: bytes) -> Webhook:
    """Raises ValueError for an entry of another shape."""
    fields = msgspec.json.decode(value)
    return msgspec.convert({**fields, "name": key.decode()}, Webhook)
