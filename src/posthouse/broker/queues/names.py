"""The names of the topics of exchanges and queues, which themselves may have any name."""

import re
from hashlib import sha256
from typing import Final

from posthouse.model.errors import InvalidTopicName
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.model.topics import check_topic_name

_SEPARATOR: Final = ".."
_MADE_UP: Final = "x."
_SLUG_LENGTH: Final = 64
_OTHERS = re.compile(r"[^A-Za-z0-9_-]+")


def topic_name(namespace: str, name: str) -> str:
    """A legal topic name, and for no other namespace and name the same one.

    The name itself in the default namespace, `namespace..name` in others. What cannot be written like that
    gets `x.`, what is legible of it, and a hash. So a name that begins with `x.` or has two dots in a row is
    never used as it is.
    """
    if _is_plain(name):
        if namespace == DEFAULT_NAMESPACE:
            return name
        joined = namespace + _SEPARATOR + name
        # A dot on either side would leave open where the separator is.
        if _is_plain(namespace) and namespace[-1] != "." and name[0] != "." and _is_legal(joined):
            return joined
    full = name if namespace == DEFAULT_NAMESPACE else f"{namespace}/{name}"
    slug = _OTHERS.sub("-", full)[:_SLUG_LENGTH].strip("-") or "-"
    identity = f"{len(namespace)}:{namespace}{name}".encode(errors="surrogatepass")
    return f"{_MADE_UP}{slug}.{sha256(identity).hexdigest()[:12]}"


def topic_prefixes(namespace: str) -> tuple[str, ...]:
    """How the topics of a namespace begin, plain names and others. Some of other namespaces do so, too."""
    if namespace == DEFAULT_NAMESPACE:
        return ("",)
    return (namespace + _SEPARATOR, _MADE_UP + _OTHERS.sub("-", namespace)[:_SLUG_LENGTH].strip("-"))


def _is_plain(name: str) -> bool:
    return _SEPARATOR not in name and not name.startswith(_MADE_UP) and _is_legal(name)


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
