"""The address of a place in an S3 bucket: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME&path_style=true`.

`checksum` says how the server recognises an upload that was damaged on its way: `sha256` is part of the
signature and all servers know it, `crc64nvme` costs almost nothing and newer servers know it, `none` leaves
it to TLS. The default is `none` for https:// and `sha256` for http://.
"""

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import SplitResult, parse_qsl, urlsplit

from posthouse.model.errors import InvalidConfig
from posthouse.storage.shared.objects.store import check_prefix

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_OPTIONS = ("checksum", "endpoint", "path_style", "region")
_TRUTHS = {"true": True, "false": False}


class UploadChecksum(Enum):
    SHA256 = "sha256"
    CRC64NVME = "crc64nvme"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    """http:// or https:// and a host; None for Amazon's, or for the one in AWS_ENDPOINT_URL."""
    region: str | None = None
    """None for the one in AWS_REGION, or us-east-1."""
    is_path_style: bool = True
    """The bucket is in the path of requests, not in the host name. Amazon and all others can do that."""
    checksum: UploadChecksum | None = None
    """None for the default of the endpoint."""

    @property
    def name(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{'/'.join(filter(None, (self.bucket, self.prefix)))}{at}"

    @property
    def upload_checksum(self) -> UploadChecksum:
        if self.checksum is not None:
            return self.checksum
        has_tls = self.endpoint is None or self.endpoint.startswith("https://")
        return UploadChecksum.NONE if has_tls else UploadChecksum.SHA256


def parse_s3_address(url: str) -> S3Address:
    """Raises InvalidConfig, which says what is wrong. It never shows what may be a secret."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InvalidConfig(
            "the address of the object store has a user name or password; give the credentials in "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise InvalidConfig(
            f"{parts.netloc!r} is not the name of an S3 bucket: write s3://BUCKET/PREFIX, with 3 to 63 lower "
            "case letters, digits, dots and hyphens for BUCKET"
        )
    prefix = parts.path.strip("/")
    try:
        check_prefix(prefix)
    except ValueError:
        raise InvalidConfig(
            f"{prefix!r} is not a prefix for objects: use letters, digits, dots, hyphens and slashes"
        ) from None
    options = _options(parts)
    return S3Address(
        bucket=parts.netloc,
        prefix=prefix,
        endpoint=_endpoint(options["endpoint"]) if "endpoint" in options else None,
        region=options.get("region"),
        is_path_style=_truth("path_style", options.get("path_style", "true")),
        checksum=_checksum(options["checksum"]) if "checksum" in options else None,
    )


def _options(parts: SplitResult) -> dict[str, str]:
    if parts.fragment:
        raise InvalidConfig("the address of the object store has a '#'; options begin with '?'")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise InvalidConfig(
                f"{name!r} is not an option of an S3 address; it has {', '.join(_OPTIONS)}. Credentials are "
                "in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if not value or name in options:
            raise InvalidConfig(f"the address of the object store needs one value for {name}")
        options[name] = value
    return options


def _endpoint(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_usable = False
    if not is_usable or parts.scheme not in ("http", "https") or parts.path.strip("/") or "@" in parts.netloc:
        raise InvalidConfig(
            "the endpoint of the object store is not an address: write endpoint=https://HOST or "
            "endpoint=http://HOST:PORT"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _checksum(value: str) -> UploadChecksum:
    try:
        return UploadChecksum(value)
    except ValueError:
        known = ", ".join(f"'{each.value}'" for each in UploadChecksum)
        raise InvalidConfig(
            f"checksum of the object store's address is one of {known}, not {value!r}"
        ) from None


def _truth(name: str, value: str) -> bool:
    if value not in _TRUTHS:
        raise InvalidConfig(f"{name} of the object store's address is 'true' or 'false', not {value!r}")
    return _TRUTHS[value]
