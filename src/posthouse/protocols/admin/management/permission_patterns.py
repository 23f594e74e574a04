"""RabbitMQ's permissions as ACLs, and back.

RabbitMQ has three regular expressions for each user and virtual host: what may be configured, written and
read. ACLs name topics, whole or by their beginning. Patterns that say no more than that are translated: `.*`,
`^$`, `^name$`, `^prefix`, `^prefix.*`, `^(a|b)$`. Others are refused.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.broker.access.acls import ANY_NAME, Acl, Pattern
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.queues.names import DEFAULT_NAMESPACE, topic_name, topic_prefixes
from posthouse.protocols.admin.management.errors import bad_request

OPERATIONS: Final = {
    "configure": (Operation.CREATE, Operation.DELETE),
    "write": (Operation.WRITE,),
    "read": (Operation.READ,),
}
_ALL: Final = ".*"
_EVERYTHING: Final = frozenset({".*", "^.*", "^.*$", ".*$"})
_NOTHING: Final = frozenset({"", "^$"})
_ALTERNATIVES: Final = re.compile(r"\^\(([^()]*)\)(\.\*)?(\$)?\Z")
_ONE: Final = re.compile(r"\^((?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])+)(\.\*)?(\$)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """One name, or all that begin with it."""

    name: str
    is_prefix: bool


def parse(pattern: str) -> Sequence[Names] | None:
    """None for everything. Raises Refusal for patterns that ACLs cannot express."""
    if pattern in _EVERYTHING:
        return None
    if pattern in _NOTHING:
        return ()
    found = _ALTERNATIVES.match(pattern)
    parts = (
        [f"^{each}{found[2] or ''}{found[3] or ''}" for each in found[1].split("|")]
        if found is not None
        else pattern.split("|")
    )
    return [_parse_one(part, pattern) for part in parts]


def _parse_one(part: str, pattern: str) -> Names:
    found = _ONE.match(part)
    if found is None:
        raise bad_request(
            f"the pattern {pattern!r} cannot be expressed by ACLs; use .*, ^name$, ^prefix.* or ^(a|b)$"
        )
    name = re.sub(r"\\(.)", r"\1", found[1])
    return Names(name=name, is_prefix=found[2] is not None or found[3] is None)


def acls_of(user: str, vhost: str, word: str, pattern: str) -> list[Acl]:
    """`word` is configure, write or read."""
    names = parse(pattern)
    if names is None:
        resources = _whole(vhost)
    else:
        resources = [
            (
                topic_name(vhost, each.name),
                Pattern.PREFIXED if each.is_prefix else Pattern.LITERAL,
            )
            for each in names
        ]
    return [
        Acl(kind=Kind.TOPIC, name=name, pattern=kind, principal=f"User:{user}", operation=operation)
        for name, kind in resources
        for operation in OPERATIONS[word]
    ]


def _whole(vhost: str) -> list[tuple[str, Pattern]]:
    if vhost == DEFAULT_NAMESPACE:
        return [(ANY_NAME, Pattern.LITERAL)]
    return [(prefix, Pattern.PREFIXED) for prefix in topic_prefixes(vhost)]


def pattern_of(acls: Iterable[Acl], vhost: str, word: str) -> str:
    """The ACLs of one user that allow something. Empty for nothing, as RabbitMQ writes it."""
    first = OPERATIONS[word][0]
    parts: dict[str, None] = {}
    for acl in acls:
        if acl.operation not in (first, Operation.ALL):
            continue
        if (acl.name, acl.pattern) in _whole(vhost) or acl.name == ANY_NAME:
            return _ALL
        name = _name_in(vhost, acl.name)
        if name is not None:
            parts[f"^{re.escape(name)}" + (".*" if acl.pattern is Pattern.PREFIXED else "$")] = None
    return "|".join(parts)


def _name_in(vhost: str, topic: str) -> str | None:
    """None for a topic of another virtual host."""
    if vhost == DEFAULT_NAMESPACE:
        return None if ".." in topic else topic
    prefix = topic_prefixes(vhost)[0]
    return topic.removeprefix(prefix) if topic.startswith(prefix) else None
