"""Sizes and percentages as people type them: '10MB', '512KiB', '1.5 GB', '50%'."""

import re

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]*)(?:/S)?")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")


def parse_size(text: str) -> float:
    """Bytes. Raises ValueError."""
    found = _AMOUNT.fullmatch(text.strip().upper())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{text.strip()!r} is no amount; write for example 10MB, 512KiB or 1000000")
    return float(found[1]) * _UNITS[found[2]]


def parse_percentage(text: str) -> float:
    """Raises ValueError."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text.strip()!r} is no share; write for example 50%")
    return float(found[1])


def shown_size(amount: float) -> str:
    """In the largest unit that is exact."""
    for unit in ("GiB", "MiB", "GB", "MB", "KiB", "KB"):
        if amount and amount % _UNITS[unit.upper()] == 0:
            return f"{amount / _UNITS[unit.upper()]:g}{unit}"
    return f"{amount:g}B"


def rounded_size(amount: float) -> str:
    """In three digits: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"
