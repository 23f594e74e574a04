"""The rules of each kind of group, from the broker's settings and the group's own."""

from collections.abc import Callable

from posthouse.broker.groups.classic import ClassicRules
from posthouse.broker.groups.configs import GroupConfigs
from posthouse.broker.groups.consumer import ConsumerRules
from posthouse.broker.groups.membership import JoinRequest
from posthouse.broker.groups.metadata import MemberMetadata
from posthouse.broker.groups.streams import StreamsRules
from posthouse.model.errors import InvalidSessionTimeout
from posthouse.model.ids import GroupId, MemberId
from posthouse.settings import Settings


class GroupRules:
    def __init__(
        self,
        settings: Settings,
        configs: GroupConfigs,
        metadata: MemberMetadata,
        new_member_id: Callable[[str], MemberId],
    ) -> None:
        self._settings = settings
        self._configs = configs
        self._metadata = metadata
        self.classic = ClassicRules(
            initial_seconds=settings.group_initial_rebalance_ms / 1000,
            max_size=settings.group_max_size,
            new_member_id=new_member_id,
            same_subscription=self._same_subscription,
        )
        """The same for all classic groups."""

    def consumer(self, group_id: GroupId) -> ConsumerRules:
        config = self._configs.get(group_id)
        return ConsumerRules(
            session_seconds=config.consumer_session_timeout_ms / 1000,
            max_size=self._settings.group_max_size,
            assignment_seconds=config.consumer_assignment_interval_ms / 1000,
        )

    def streams(self, group_id: GroupId) -> StreamsRules:
        config = self._configs.get(group_id)
        return StreamsRules(
            session_seconds=config.streams_session_timeout_ms / 1000,
            max_size=self._settings.group_max_size,
            initial_seconds=config.streams_initial_rebalance_delay_ms / 1000,
            assignment_seconds=config.streams_assignment_interval_ms / 1000,
            standbys=config.streams_num_standby_replicas,
        )

    def check_session(self, request: JoinRequest) -> None:
        """Raises InvalidSessionTimeout."""
        low, high = self._settings.group_min_session_ms, self._settings.group_max_session_ms
        if not low <= request.session_seconds * 1000 <= high:
            raise InvalidSessionTimeout(f"a session timeout must be between {low} and {high} ms")

    def _same_subscription(self, protocol_type: str, old: bytes, new: bytes) -> bool:
        before = self._metadata.subscription(protocol_type, old)
        now = self._metadata.subscription(protocol_type, new)
        return before is not None and now is not None and before.topics == now.topics
