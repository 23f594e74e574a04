"""Kafka's names of the states and types of groups."""

from enum import Enum

from posthouse.broker.groups.consumer import ConsumerState
from posthouse.broker.groups.descriptions import GroupKind
from posthouse.broker.groups.states import ClassicState
from posthouse.broker.groups.streams import StreamsState
from posthouse.protocols.kafka.share_groups.group import ShareState

STATE_NAMES: dict[Enum, str] = {
    ClassicState.EMPTY: "Empty",
    ClassicState.GATHERING: "PreparingRebalance",
    ClassicState.AWAITING_ASSIGNMENT: "CompletingRebalance",
    ClassicState.STABLE: "Stable",
    ClassicState.DEAD: "Dead",
    ConsumerState.EMPTY: "Empty",
    ConsumerState.ASSIGNING: "Assigning",
    ConsumerState.RECONCILING: "Reconciling",
    ConsumerState.STABLE: "Stable",
    ConsumerState.DEAD: "Dead",
    StreamsState.EMPTY: "Empty",
    StreamsState.NOT_READY: "NotReady",
    StreamsState.ASSIGNING: "Assigning",
    StreamsState.RECONCILING: "Reconciling",
    StreamsState.STABLE: "Stable",
    StreamsState.DEAD: "Dead",
    ShareState.EMPTY: "Empty",
    ShareState.STABLE: "Stable",
    ShareState.DEAD: "Dead",
}

TYPE_NAMES = {
    GroupKind.CLASSIC: "classic",
    GroupKind.CONSUMER: "consumer",
    GroupKind.STREAMS: "streams",
    GroupKind.SHARE: "share",
}
