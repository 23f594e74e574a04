"""Entries of the audit log and their JSON format."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

LEFT_OUT = "left-out"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    principal: str
    peer: str
    protocol: str
    action: str
    resource: str
    allowed: bool
    detail: str = ""

    def line(self, at_ms: int, count: int) -> bytes:
        given: dict[str, Any] = {
            "time": _time(at_ms),
            "principal": self.principal,
            "peer": self.peer,
            "protocol": self.protocol,
            "action": self.action,
            "resource": self.resource,
            "allowed": self.allowed,
        }
        if self.detail:
            given["detail"] = self.detail
        if count > 1:
            given["count"] = count
        return _encoded(given)


def summary_line(at_ms: int, source: str, actions: Mapping[str, int], *, allowed: bool) -> bytes:
    """The number of entries of one source that were left out, by action."""
    return _encoded(
        {
            "time": _time(at_ms),
            "action": LEFT_OUT,
            "source": source,
            "allowed": allowed,
            "count": sum(actions.values()),
            "actions": dict(actions),
        }
    )


def _encoded(given: Mapping[str, Any]) -> bytes:
    """JSON in ASCII with all other characters escaped, so that no name can start a new line."""
    return json.dumps(given).encode() + b"\n"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
