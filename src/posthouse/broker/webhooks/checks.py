"""Whether a definition may be stored. What it names (topic, queue) is checked by the registry."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from posthouse.broker.filters.sql import compile_sql
from posthouse.broker.webhooks.definition import Form, Webhook
from posthouse.model.errors import InvalidWebhook

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LONGEST_URL: Final = 2000
_MOST_BATCH: Final = 1000
_MOST_CONCURRENCY: Final = 256
_MOST_ATTEMPTS: Final = 1000
_LONGEST_TIMEOUT: Final = 300.0
_LONGEST_DELAY: Final = 24 * 3600.0
_LOWEST_RATE: Final = 0.1
"""Token buckets do not make anybody wait for longer than half a minute."""
_HIGHEST_RATE: Final = 1_000_000.0
_DELETE: Final = "\x7f"


def check(webhook: Webhook) -> None:
    """Raises InvalidWebhook and InvalidFilter."""
    if not _NAME.fullmatch(webhook.name):
        raise InvalidWebhook(
            f"the name of a webhook has up to 100 letters, digits, dots, hyphens and underscores, not "
            f"{webhook.name[:100]!r}"
        )
    if (webhook.topic is None) == (webhook.queue is None):
        raise InvalidWebhook("a webhook needs either a topic or a queue")
    target, retries = webhook.target, webhook.retries
    parsed_url(target.url)
    _between("batch", target.batch, 1, _MOST_BATCH)
    _between("concurrency", target.concurrency, 1, _MOST_CONCURRENCY)
    _between("timeout_seconds", target.timeout_seconds, 0.1, _LONGEST_TIMEOUT)
    _between("max_attempts", retries.max_attempts, 1, _MOST_ATTEMPTS)
    _between("first_delay_seconds", retries.first_delay_seconds, 0.01, _LONGEST_DELAY)
    _between(
        "longest_delay_seconds", retries.longest_delay_seconds, retries.first_delay_seconds, _LONGEST_DELAY
    )
    if target.rate is not None:
        _between("rate", target.rate, _LOWEST_RATE, _HIGHEST_RATE)
    if target.batch > 1 and target.form is not Form.STRUCTURED:
        raise InvalidWebhook(f"only the form {Form.STRUCTURED} has room for several messages in one request")
    if webhook.filter is not None:
        if webhook.topic is None:
            raise InvalidWebhook(
                "a filter needs a topic: a queue gets what its bindings select, and what a filter left out "
                "would be lost to its other consumers"
            )
        compile_sql(webhook.filter)


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidWebhook(f"{name} must be from {low:g} to {high:g}, not {value:g}")


def parsed_url(text: str) -> SplitResult:
    """Raises InvalidWebhook."""
    if len(text) > _LONGEST_URL:
        raise InvalidWebhook(f"the URL has more than {_LONGEST_URL} characters")
    if not text.isascii() or any(each <= " " or each == _DELETE for each in text):
        raise InvalidWebhook("the URL has blanks or characters beyond ASCII; percent-encode them")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise InvalidWebhook(f"{text!r} is not a URL: {error}") from None
    if url.scheme not in ("https", "http") or not url.hostname or port == 0:
        raise InvalidWebhook(f"{text!r} is not a URL like https://example.org/hooks")
    if url.username is not None or url.password is not None:
        raise InvalidWebhook("a URL with a user or password would be shown to operators; leave them out")
    if url.fragment:
        raise InvalidWebhook("a URL with a fragment (#) cannot be requested; leave it out")
    return url
