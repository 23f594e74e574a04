"""Addresses of object stores: what they mean, and what is said of those that mean nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from posthouse.model.errors import InvalidConfig
from posthouse.storage.shared.objects.opening import open_object_store
from posthouse.storage.shared.objects.s3_address import S3Address, UploadChecksum, parse_s3_address

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://bucket", S3Address(bucket="bucket")),
        ("s3://bucket/", S3Address(bucket="bucket")),
        ("s3://my.bucket-1/a/b/", S3Address(bucket="my.bucket-1", prefix="a/b")),
        (
            "s3://bucket/a?endpoint=http://127.0.0.1:7070&region=eu-central-1&path_style=true",
            S3Address(bucket="bucket", prefix="a", endpoint="http://127.0.0.1:7070", region="eu-central-1"),
        ),
        (
            "s3://bucket?endpoint=https://s3.example.com/&path_style=false",
            S3Address(bucket="bucket", endpoint="https://s3.example.com", is_path_style=False),
        ),
    ],
)
def test_addresses_of_s3(url: str, address: S3Address) -> None:
    assert parse_s3_address(url) == address


@pytest.mark.parametrize(
    ("options", "checksum"),
    [
        ("", UploadChecksum.NONE),
        ("?endpoint=https://s3.example.com", UploadChecksum.NONE),
        ("?endpoint=http://s3.example.com", UploadChecksum.SHA256),
        ("?endpoint=http://s3.example.com&checksum=none", UploadChecksum.NONE),
        ("?endpoint=http://s3.example.com&checksum=crc64nvme", UploadChecksum.CRC64NVME),
        ("?checksum=sha256", UploadChecksum.SHA256),
    ],
)
def test_checksums_of_uploads(options: str, checksum: UploadChecksum) -> None:
    assert parse_s3_address(f"s3://bucket{options}").upload_checksum is checksum


async def test_names_are_for_people(tmp_path: Path) -> None:
    for url, name in [
        ("s3://bucket/a", "s3://bucket/a"),
        ("s3://bucket?endpoint=http://127.0.0.1:7070", "s3://bucket at http://127.0.0.1:7070"),
        (f"file://{tmp_path}/objects", f"file://{tmp_path}/objects"),
        (f"file://{tmp_path}/my%20objects", f"file://{tmp_path}/my objects"),
    ]:
        store = open_object_store(url, timeout=1)
        assert store.name == name
        await store.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("bucket", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("http://bucket", "'http' is not a kind of object store"),
        ("s3://[bucket", "cannot be read"),
        ("s3://", "is not the name of an S3 bucket"),
        ("s3:///prefix", "is not the name of an S3 bucket"),
        ("s3://Bucket", "is not the name of an S3 bucket"),
        (f"s3://key:{SECRET}@bucket", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket?checksum=md5", "one of 'sha256', 'crc64nvme', 'none', not 'md5'"),
        ("s3://bucket/a//b", "is not a prefix"),
        ("s3://bucket/../b", "is not a prefix"),
        ("s3://bucket/a b", "is not a prefix"),
        ("s3://bucket#a", "begin with"),
        (f"s3://bucket?secret_access_key={SECRET}", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket?region=", "needs one value for region"),
        ("s3://bucket?region=a&region=b", "needs one value for region"),
        ("s3://bucket?path_style=yes", "'true' or 'false'"),
        ("s3://bucket?endpoint=127.0.0.1:7070", "endpoint=http://HOST:PORT"),
        ("s3://bucket?endpoint=http://", "endpoint=http://HOST:PORT"),
        ("s3://bucket?endpoint=http://host:port", "endpoint=http://HOST:PORT"),
        (f"s3://bucket?endpoint=http://key:{SECRET}@host", "endpoint=http://HOST:PORT"),
        ("s3://bucket?endpoint=http://host/path", "endpoint=http://HOST:PORT"),
        ("file://", "file:///DIR"),
        ("file:///", "file:///DIR"),
        ("file://directory", "file:///DIR"),
        ("file:///directory?a=b", "file:///DIR"),
    ],
)
def test_what_is_no_address(url: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        open_object_store(url, timeout=1)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_client_is_loaded_for_buckets_only(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["obstore"] = None
from posthouse.model.errors import InvalidConfig
from posthouse.storage.shared.objects.opening import open_object_store
open_object_store("file://{tmp_path}", timeout=1)
try:
    open_object_store("s3://bucket", timeout=1)
except InvalidConfig as error:
    assert 'pip install "posthouse[cluster]"' in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
