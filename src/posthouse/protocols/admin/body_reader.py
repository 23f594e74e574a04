"""Bodies that are not just JSON of one type: how a call reads them, and what its description says of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from posthouse.protocols.admin.request import HttpRequest

P = TypeVar("P", contravariant=True)
B = TypeVar("B", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyReader(Generic[P, B]):
    read: Callable[[HttpRequest, P], B]
    """Raises Problem."""
    types: Mapping[str, Any] = field(default_factory=dict)
    """By media type: the types that JSON may have, as a tuple, or a schema, as a dictionary. Empty if the
    call takes no body."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Types of headers that it looks at, described as parameters are."""
