"""Values of settings, and how the texts of flags, variables and files become values.

A parser raises ValueError, with a sentence, for a text that is no value of its kind.
"""

from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path

from posthouse.model.address import Address


class Authentication(StrEnum):
    OFF = "off"
    REQUIRED = "required"


class ClientCertificates(StrEnum):
    OFF = "off"
    OPTIONAL = "optional"
    REQUIRED = "required"


_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def parse_boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true nor false") from None


def parse_log_format(text: str) -> str:
    if text not in ("text", "json"):
        raise ValueError(f"{text!r} is not a log format; use text or json")
    return text


def parse_address_or_off(text: str) -> Address | None:
    return None if text == "off" else Address.parse(text)


def parse_path_or_off(text: str) -> Path | None:
    return None if text == "off" else Path(text)


def parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_networks(text: str) -> tuple[str, ...]:
    """In the notation of CIDR; a single address is a network, too."""
    return tuple(str(ip_network(name)) for name in parse_names(text))
