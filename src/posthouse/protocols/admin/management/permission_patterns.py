"""RabbitMQ's permissions as ACLs, and back.

RabbitMQ has three regular expressions for each user and virtual host: what may be configured, written and
read. ACLs name topics, whole or by their beginning. Patterns that say no more than that are translated: `.*`,
`^$`, `^name$`, `^prefix`, `^prefix.*`, `^(a|b)$`. Others are refused.

The topics of all virtual hosts have one space of names. So an ACL may reach several of them: `*` and `orders`
as a prefix reach the topics `orders..mails` of the virtual host "orders", too. Patterns that would do so are
refused, and such an ACL is shown in each virtual host that it reaches and changed by none of them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.broker.access.acls import ANY_NAME, Acl, Pattern
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.queues.names import topic_name, topic_prefixes
from posthouse.model.scopes import DEFAULT_NAMESPACE
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHost:
    """As far as ACLs can tell its topics from those of others."""

    name: str
    others: Sequence[str]
    """The names of all other virtual hosts."""

    def is_reached_by(self, acl: Acl) -> bool:
        return _reaches(acl, self.name, self.others)

    def others_reached_by(self, acl: Acl) -> list[str]:
        everyone = (self.name, *self.others)
        return [
            other
            for other in self.others
            if _reaches(acl, other, [each for each in everyone if each != other])
        ]


def _reaches(acl: Acl, vhost: str, others: Sequence[str]) -> bool:
    if acl.is_for_all_names:
        return True
    if vhost == DEFAULT_NAMESPACE:
        # It has the names that belong to no other virtual host.
        return ".." not in acl.name and not any(
            acl.name.startswith(prefix) for other in others for prefix in _prefixes(other)
        )
    return any(
        acl.name.startswith(prefix) or (acl.pattern is Pattern.PREFIXED and prefix.startswith(acl.name))
        for prefix in _prefixes(vhost)
    )


def _prefixes(vhost: str) -> Sequence[str]:
    """How topics of a virtual host with a name begin. More exact than `topic_prefixes`, which finds those of
    "orders2" for "orders"."""
    plain, made_up = topic_prefixes(vhost)
    return (plain, made_up) if made_up.endswith(".") else (plain, f"{made_up}-", f"{made_up}.")


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


def acls_of(user: str, vhost: VirtualHost, word: str, pattern: str) -> list[Acl]:
    """`word` is configure, write or read. Raises Refusal if the pattern would reach other virtual hosts."""
    names = parse(pattern)
    if names is None:
        resources = _whole(vhost.name)
    else:
        resources = [
            (
                topic_name(vhost.name, each.name),
                Pattern.PREFIXED if each.is_prefix else Pattern.LITERAL,
            )
            for each in names
        ]
    acls = [
        Acl(kind=Kind.TOPIC, name=name, pattern=kind, principal=f"User:{user}", operation=operation)
        for name, kind in resources
        for operation in OPERATIONS[word]
    ]
    for acl in acls:
        if reached := vhost.others_reached_by(acl):
            raise bad_request(
                f"the pattern {pattern!r} of vhost {vhost.name!r} needs an ACL on {acl.resource}, which "
                f"would reach vhost {reached[0]!r}, too; use ^name$ or a longer ^prefix.*, or /v1/acls"
            )
    return acls


def _whole(vhost: str) -> list[tuple[str, Pattern]]:
    if vhost == DEFAULT_NAMESPACE:
        return [(ANY_NAME, Pattern.LITERAL)]
    return [(prefix, Pattern.PREFIXED) for prefix in _prefixes(vhost)]


def pattern_of(acls: Iterable[Acl], vhost: VirtualHost, word: str) -> str:
    """The ACLs of one user that allow something. Empty for nothing, as RabbitMQ writes it."""
    first = OPERATIONS[word][0]
    parts: dict[str, None] = {}
    for acl in acls:
        if acl.operation not in (first, Operation.ALL) or not vhost.is_reached_by(acl):
            continue
        if acl.is_for_all_names:
            return _ALL
        name = _name_in(vhost.name, acl)
        if name == "":
            return _ALL
        if name is not None:
            parts[f"^{re.escape(name)}" + (".*" if acl.pattern is Pattern.PREFIXED else "$")] = None
    return "|".join(parts)


def _name_in(vhost: str, acl: Acl) -> str | None:
    """Empty for all names of the virtual host; None for a topic whose name does not tell its queue."""
    if vhost == DEFAULT_NAMESPACE:
        return acl.name
    plain = _prefixes(vhost)[0]
    if acl.pattern is Pattern.PREFIXED and plain.startswith(acl.name):
        return ""
    return acl.name.removeprefix(plain) if acl.name.startswith(plain) else None
