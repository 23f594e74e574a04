"""The webhooks of a broker: created, changed and deleted here, and told to the part that pushes."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from posthouse.broker.changes import SerializedChanges
from posthouse.broker.protocol_members import ProtocolMembers
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.queue import Queue
from posthouse.broker.subscriptions.leases import LeaseTerms
from posthouse.broker.subscriptions.rules import SubscriptionRules
from posthouse.broker.subscriptions.subscriptions import Subscriptions
from posthouse.broker.topics import Topics
from posthouse.broker.webhooks.definition import Begin, SealedSecret, SigningKey, Webhook, webhook_of
from posthouse.broker.webhooks.secret_keeper import SecretKeeper
from posthouse.broker.webhooks.secret_texts import new_secret
from posthouse.broker.webhooks.state import Pusher, Trial, WebhookState
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    BadRequest,
    GroupNotEmpty,
    InvalidWebhook,
    PosthouseError,
    Unavailable,
    UnknownWebhook,
    WebhookExists,
)
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.scram import RandomBytes
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

MOST_SECRETS: Final = 10
"""Of one webhook: those that were rotated and are still valid are among them."""
_MOST_LEASES: Final = 2000
_MOST_DELIVERIES: Final = 0x7FFF
"""The part that pushes counts attempts itself, and knows the last answer. This only ends what it cannot."""
_LOCK_SECONDS: Final = 60.0


class Webhooks:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        keeper: SecretKeeper,
        topics: Topics,
        namespaces: Namespaces,
        subscriptions: Subscriptions,
        members: ProtocolMembers,
        *,
        is_alone: bool,
        random: RandomBytes = os.urandom,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._keeper = keeper
        self._topics = topics
        self._namespaces = namespaces
        self._subscriptions = subscriptions
        self._members = members
        self._is_alone = is_alone
        self._random = random
        self._changes = SerializedChanges()
        self._webhooks: dict[str, Webhook] = {}
        self._make_pusher: Callable[[], Pusher] | None = None
        self._pusher: Pusher | None = None

    def load(self) -> None:
        """In a broker that is alone. An entry that cannot be read pushes nothing; others do."""
        stored = self._storage.take_state(Space.WEBHOOKS)
        if not stored:
            return
        from posthouse.broker.webhooks.encoding import read

        for key, value in stored.items():
            try:
                webhook = read(key, value)
            except ValueError as error:
                log.error("the webhook %r cannot be read and pushes nothing: %s", key, error)
            else:
                self._webhooks[webhook.name] = webhook

    def start_pushing(self, make: Callable[[], Pusher]) -> None:
        """The part that pushes is made when there is a webhook: most brokers have none."""
        self._make_pusher = make
        for name in list(self._webhooks):
            self._tell(name)

    async def stop_pushing(self) -> None:
        pusher, self._pusher, self._make_pusher = self._pusher, None, None
        if pusher is not None:
            await pusher.stop()

    def check_available(self) -> None:
        """Raises BadRequest in a cluster."""
        if not self._is_alone:
            raise BadRequest("webhooks need a broker that is alone; this one shares its storage")

    # Looking

    def all(self) -> list[Webhook]:
        """In the order of their names."""
        return [self._webhooks[name] for name in sorted(self._webhooks)]

    def find(self, name: str) -> Webhook | None:
        return self._webhooks.get(name)

    def get(self, name: str) -> Webhook:
        """Raises UnknownWebhook."""
        webhook = self._webhooks.get(name)
        if webhook is None:
            raise UnknownWebhook(f"there is no webhook {name[:100]!r}")
        return webhook

    def rules(self, group: GroupId) -> SubscriptionRules | None:
        """Of the subscription of a webhook; None for any other group."""
        name = webhook_of(group)
        webhook = None if name is None else self._webhooks.get(name)
        if webhook is None or webhook.topic is None:
            return None
        return SubscriptionRules(
            terms=LeaseTerms(
                lock_seconds=_LOCK_SECONDS,
                max_deliveries=_MOST_DELIVERIES,
                has_dead_letters=True,
                max_leases=_MOST_LEASES,
            ),
            stable_only=True,
            may_renew=True,
            # The others have begun when the webhook was created: no message of a new partition is missed.
            begins_at_end=False,
            dead_letters=webhook.dead_letters,
        )

    def lag(self, webhook: Webhook) -> int:
        """Messages that are not delivered yet. Of a topic, those that the filter leaves out count until they
        are reached."""
        if webhook.topic is None:
            queue = self.queue(webhook)
            return 0 if queue is None else queue.message_count + queue.leased_count
        topic = self._topics.find(webhook.topic)
        if topic is None:
            return 0
        lag = 0
        for partition in topic.partition_ids():
            subscribed = self._subscriptions.find(webhook.group, partition)
            if subscribed is not None:
                progress = subscribed.progress
                end = self._storage.bounds(partition).end
                lag += max(end - progress.floor - progress.settled_above, 0)
        return lag

    def queue(self, webhook: Webhook) -> Queue | None:
        """None while there is no such queue."""
        if webhook.queue is None:
            return None
        found = self._namespaces.get(webhook.namespace).queues.get(webhook.queue)
        return found if isinstance(found, Queue) else None

    def state(self, name: str) -> WebhookState | None:
        return None if self._pusher is None else self._pusher.state(name)

    async def signing_keys(self, webhook: Webhook) -> list[SigningKey]:
        """The newest first. Raises Unavailable and InvalidConfig."""
        return [
            SigningKey(
                key=await self._keeper.open(each.sealed, webhook.name), valid_until_ms=each.valid_until_ms
            )
            for each in webhook.secrets
            if each.valid_until_ms is None or each.valid_until_ms > self._clock.now_ms()
        ]

    # Changing

    async def create(self, webhook: Webhook, secret: bytes | None = None) -> bytes:
        """Durable on return; messages from now on are pushed, or all. Returns its secret: a new one, if none
        is given. `webhook` has no secrets yet. Raises WebhookExists, InvalidWebhook, InvalidFilter,
        UnknownTopic, UnknownQueue and GroupNotEmpty."""
        # What only brokers with webhooks need is imported when it is needed: others start sooner.
        from posthouse.broker.webhooks.checks import check

        self.check_available()
        check(webhook)
        key = new_secret(self._random) if secret is None else secret
        sealed = SealedSecret(sealed=await self._keeper.seal(key, webhook.name))
        await self._changes.make(self._create(replace(webhook, secrets=(sealed,))))
        return key

    async def _create(self, webhook: Webhook) -> None:
        if webhook.name in self._webhooks:
            raise WebhookExists(f"there is a webhook {webhook.name!r} already; change or delete it")
        self._check_source(webhook)
        if webhook.topic is not None:
            if webhook.group in self._subscriptions or self._members.of(webhook.group):
                raise GroupNotEmpty(
                    f"the group {webhook.group!r} exists already; delete it, or give the webhook another name"
                )
            try:
                await self._subscribe(webhook, self._topics.get(webhook.topic))
                await self._store(webhook)
            except BaseException:
                await self._drop_group(webhook.group)
                raise
        else:
            await self._store(webhook)

    async def _drop_group(self, group: GroupId) -> None:
        """Of a webhook that could not be stored: its name is free again."""
        try:
            await self._subscriptions.delete(group)
        except PosthouseError as error:
            log.error("the group %s has no webhook and should be deleted: %s", group, error)

    async def _subscribe(self, webhook: Webhook, topic: Topic) -> None:
        """From the ends that the topic has now, not from those of the first request."""
        await self._subscriptions.create(webhook.group)
        partitions = topic.partition_ids()
        bounds = {each: self._storage.bounds(each) for each in partitions}
        is_latest = webhook.begin is Begin.LATEST
        begins = {each: bounds[each].end if is_latest else bounds[each].start for each in partitions}
        await self._subscriptions.move(webhook.group, begins)

    def _check_source(self, webhook: Webhook) -> None:
        if webhook.topic is not None:
            self._topics.get(webhook.topic)
            return
        assert webhook.queue is not None
        queue = self._namespaces.get(webhook.namespace).queue_of_any_session(webhook.queue)
        if not isinstance(queue, Queue):
            raise InvalidWebhook(f"{queue} keeps its messages: webhooks push those of queues and of topics")
        if webhook.ordered and not queue.definition.ordered_by_key:
            raise InvalidWebhook(f"{queue} has no order by key; declare it with one, or leave ordered out")

    async def change(self, name: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        """`change` gets the webhook as it is. Durable on return. Raises what `create` raises, and
        UnknownWebhook."""
        self.check_available()
        return await self._changes.make(self._change(name, change))

    async def _change(self, name: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        from posthouse.broker.webhooks.checks import check

        webhook = change(self.get(name))
        check(webhook)
        if webhook.paused is None:
            self._check_source(webhook)
        await self._store(webhook)
        return webhook

    async def _store(self, webhook: Webhook) -> None:
        from posthouse.broker.webhooks.encoding import put

        await self._storage.commit([put(webhook)])
        self._webhooks[webhook.name] = webhook
        self._tell(webhook.name)

    async def pause(self, name: str, reason: str) -> None:
        """Durable on return. What is under way is finished."""
        await self.change(name, lambda webhook: replace(webhook, paused=reason))

    async def resume(self, name: str) -> None:
        await self.change(name, lambda webhook: replace(webhook, paused=None))

    async def rotate(self, name: str, *, valid_ms: int, secret: bytes | None = None) -> bytes:
        """Give the webhook another secret. Requests are signed with both until `valid_ms` from now. Returns
        the new one."""
        self.check_available()
        self.get(name)
        key = new_secret(self._random) if secret is None else secret
        sealed = await self._keeper.seal(key, name)

        def rotated(webhook: Webhook) -> Webhook:
            now = self._clock.now_ms()
            older = [
                replace(each, valid_until_ms=min(each.valid_until_ms or now + valid_ms, now + valid_ms))
                for each in webhook.secrets
                if each.valid_until_ms is None or each.valid_until_ms > now
            ]
            still_valid = [each for each in older if (each.valid_until_ms or 0) > now]
            if len(still_valid) >= MOST_SECRETS:
                raise InvalidWebhook(
                    f"webhook {name!r} has {len(still_valid)} secrets that are still valid; rotate with "
                    "valid_seconds=0 to end them"
                )
            return replace(webhook, secrets=(SealedSecret(sealed=sealed), *still_valid))

        await self.change(name, rotated)
        return key

    async def delete(self, name: str) -> None:
        """Durable on return. Its progress is gone; dead letters stay."""
        self.check_available()
        await self._changes.make(self._delete(name))

    async def _delete(self, name: str) -> None:
        from posthouse.broker.webhooks.encoding import removal

        webhook = self.get(name)
        await self._storage.commit([removal(name)])
        del self._webhooks[name]
        self._tell(name)
        if self._pusher is not None:
            await self._pusher.ended()
        if webhook.topic is not None and webhook.group in self._subscriptions:
            await self._subscriptions.delete(webhook.group)

    async def replay(self, name: str, since_ms: int) -> Mapping[PartitionId, int]:
        """Push again what was written at or after a time. Returns where each partition goes on."""
        self.check_available()
        webhook = self.get(name)
        if webhook.topic is None:
            raise InvalidWebhook(
                f"webhook {name!r} pushes the messages of a queue, which are gone once they are delivered; "
                "only those of a topic can be replayed"
            )
        offsets = await self._offsets_at(self._topics.get(webhook.topic), since_ms)
        await self._subscriptions.move(webhook.group, offsets)
        return offsets

    async def _offsets_at(self, topic: Topic, since_ms: int) -> dict[PartitionId, int]:
        """The end where nothing was written since."""
        offsets: dict[PartitionId, int] = {}
        for partition in topic.partition_ids():
            found = await self._storage.find_timestamp(partition, since_ms)
            offsets[partition] = self._storage.bounds(partition).end if found is None else found.offset
        return offsets

    async def test(self, name: str) -> Trial:
        """Send a made-up message now. Raises UnknownWebhook and Unavailable."""
        self.check_available()
        self.get(name)
        if self._pusher is None:
            raise Unavailable("the broker is starting or stopping; try again")
        return await self._pusher.test(name)

    def _tell(self, name: str) -> None:
        if self._pusher is None and self._make_pusher is not None:
            self._pusher = self._make_pusher()
        if self._pusher is not None:
            self._pusher.changed(name)
