"""Requests that a browser may have been tricked into (CSRF, DNS rebinding), and headers for browsers.

A browser sends requests to this broker for any page that it shows. A page of another site must not change
anything, and must not read anything where no login is required:

- a request that names another origin than the one it is sent to is refused;
- a body must be JSON, or of another type for which a page of another site has to ask first (CORS): the answer
  is 405. Clients of RabbitMQ that do not say what their body is are no browsers: those name their origin;
- without a login, the Host header must be an address or localhost: a name that was rebound to this machine is
  refused.
"""

import ipaddress

from posthouse.listener_settings import Address
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import RABBITMQ, HttpRequest

SECURITY_HEADERS: tuple[tuple[str, str], ...] = (
    ("cache-control", "no-store"),
    ("content-security-policy", "default-src 'self'; frame-ancestors 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
)

_JSON_TYPES = ("application/json", "application/bert")
"""rabbitmqadmin and its kin name one of these."""
_UNASKED_TYPES = frozenset({"", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""A page may send these to any site without asking, unless it also sends one of these headers."""
_ASKED_HEADERS = frozenset({"ce-specversion", "idempotency-key"})
_OF_TYPES_AND_BROWSERS = frozenset({"content-type", "origin", "sec-fetch-site"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})


def check(request: HttpRequest, *, must_log_in: bool, host: str, takes_any_type: bool = False) -> None:
    """`host` is where the listener is bound. Raises Problem."""
    asked = request.headers.get("host", "")
    if not must_log_in and asked and not _is_safe(asked, host):
        raise Problem(
            421,
            f"this broker does not answer for the host {asked[:200]!r} without a login; use its address, "
            "or let users log in with --authentication required",
        )
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != asked:
        raise Problem(403, f"requests from pages of {origin[:200]} are refused")
    if request.headers.get("sec-fetch-site") == "cross-site" and request.method not in READING:
        raise Problem(403, "requests from pages of other sites are refused")
    if not request.body:
        return
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if takes_any_type:
        if content_type in _UNASKED_TYPES and not request.headers.keys() & _ASKED_HEADERS:
            raise Problem(
                415,
                "send records as application/json, and plain bytes as application/octet-stream or a type of "
                "their own; pages of other sites could send this type",
            )
    elif not (_is_json(content_type) or _is_untyped(request)):
        raise Problem(415, "send the body as application/json")


def _is_json(content_type: str) -> bool:
    return content_type in _JSON_TYPES or content_type.endswith("+json")


def _is_untyped(request: HttpRequest) -> bool:
    """Whether a program, such as pyrabbit2, sends a body to RabbitMQ's API without a type."""
    return request.segments[0] == RABBITMQ and not request.headers.keys() & _OF_TYPES_AND_BROWSERS


def _is_safe(asked: str, bound: str) -> bool:
    try:
        name = Address.parse(asked if asked.rpartition(":")[2].isdigit() else f"{asked}:0").host
    except ValueError:
        return False
    if name in ("localhost", bound):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
