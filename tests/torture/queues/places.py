"""The virtual hosts that queues lie in. In a cluster each of them can lie with another broker."""

from dataclasses import dataclass

from posthouse.broker.queues.names import topic_name
from posthouse.model.scopes import DEFAULT_NAMESPACE, Scope, scope_of_namespace

EXCHANGE = "parcels"
"""A fanout to all of `FANNED`."""
FANNED = ("billing", "shipping")
SINGLE = "tasks"
QUEUES = (*FANNED, SINGLE)


@dataclass(frozen=True, slots=True)
class Place:
    """A virtual host with the exchange and the queues."""

    namespace: str

    @property
    def scope(self) -> Scope:
        return scope_of_namespace(self.namespace)

    @property
    def topic(self) -> str:
        """Of the exchange."""
        return topic_name(self.namespace, EXCHANGE)

    def label(self, queue: str) -> str:
        """What the queue is called in the history, where names are unique."""
        return queue if self.namespace == DEFAULT_NAMESPACE else f"{self.namespace} {queue}"


DEFAULT = Place(DEFAULT_NAMESPACE)
PLACES = (DEFAULT, Place("north"), Place("south"))
"""Their scopes differ."""
NAMESPACES = tuple(each.namespace for each in PLACES)
