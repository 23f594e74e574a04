"""Webhooks as members of their groups: views of groups show them, and no group is deleted under a webhook."""

from collections.abc import Iterable, Sequence
from typing import Final

from posthouse.broker.protocol_members import ProtocolMember
from posthouse.broker.webhooks.definition import Webhook, webhook_of
from posthouse.broker.webhooks.webhooks import Webhooks
from posthouse.model.ids import GroupId, MemberId

_HOST: Final = "/127.0.0.1"
"""They are in the broker itself."""


def member_of(webhook: Webhook) -> MemberId:
    return MemberId(f"webhook-{webhook.name}")


class WebhookMembers:
    leases = True

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def members(self, group: GroupId) -> Sequence[ProtocolMember]:
        name = webhook_of(group)
        webhook = None if name is None else self._webhooks.find(name)
        if webhook is None or webhook.topic is None:
            return ()
        return (
            ProtocolMember(
                id=member_of(webhook),
                client=f"webhook {webhook.name}",
                host=_HOST,
                topics=frozenset({webhook.topic}),
                follows_resets=True,
            ),
        )

    def groups(self) -> Iterable[GroupId]:
        return [each.group for each in self._webhooks.all() if each.topic is not None]
