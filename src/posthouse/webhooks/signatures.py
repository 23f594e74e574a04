"""Signatures of Standard Webhooks: HMAC-SHA256 of id, time and body, with each key that is valid now."""

import base64
import hmac
from collections.abc import Iterable

from posthouse.broker.webhooks.definition import SigningKey


def signed_headers(keys: Iterable[SigningKey], id: str, now_ms: int, body: bytes) -> list[tuple[str, str]]:
    seconds = now_ms // 1000
    content = b"%s.%d.%s" % (id.encode(), seconds, body)
    signatures = [
        "v1," + base64.b64encode(hmac.digest(each.key, content, "sha256")).decode()
        for each in keys
        if each.valid_until_ms is None or each.valid_until_ms > now_ms
    ]
    return [
        ("webhook-id", id),
        ("webhook-timestamp", str(seconds)),
        ("webhook-signature", " ".join(signatures)),
    ]
