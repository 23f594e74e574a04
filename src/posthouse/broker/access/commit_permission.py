"""Required permissions on a topic to commit a group's offsets, for every protocol that can."""

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.ids import ARCHIVE_GROUP


def missing_to_commit(guard: Guard, group: str, topic: str) -> Operation | None:
    """The missing permission, or None if the commit is allowed. Refusals are audited.

    Committing the archive's offsets needs the permission to delete: it allows the broker to delete records.
    """
    if not guard.allows(Operation.READ, Kind.TOPIC, topic):
        return Operation.READ
    if group == ARCHIVE_GROUP and not guard.may(Operation.DELETE, Kind.TOPIC, topic):
        guard.note_refused(Operation.DELETE, f"{Kind.TOPIC}:{topic}", "a commit of the archive's offsets")
        return Operation.DELETE
    return None
