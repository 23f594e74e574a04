"""The newest lines of the audit log."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.problems import Problem

_MOST_BYTES = 1024 * 1024
"""Of the end of the file; names in a line are short, so that this is thousands of lines."""


class AuditWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000, description="Most entries of the answer.")] = 100


class AuditTail(msgspec.Struct, frozen=True, kw_only=True):
    enabled: Annotated[bool, Meta(description="Without authentication, and in memory, none is written.")]
    entries: Annotated[list[dict[str, Any]], Meta(description="The newest first, as they are in the file.")]


async def _tail(context: CallContext, parameters: AuditWanted, body: NoBody) -> AuditTail:
    context.require_cluster(Operation.DESCRIBE_CONFIGS)
    path = context.settings.audit_path
    if path is None:
        return AuditTail(enabled=False, entries=[])
    try:
        entries = await asyncio.to_thread(_entries, path, parameters.limit)
    except OSError as error:
        raise Problem(503, f"the audit log cannot be read: {error.strerror}") from None
    return AuditTail(enabled=True, entries=entries)


def _entries(path: Path, limit: int) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _MOST_BYTES, 0))
        lines = file.read(_MOST_BYTES).splitlines()
    if size > _MOST_BYTES:
        del lines[:1]  # cut
    found: list[dict[str, Any]] = []
    for line in reversed(lines):
        if len(found) == limit:
            break
        try:
            found.append(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # torn by a crash, see audit_file
    return found


AUDIT: Final = Endpoint(
    method="GET",
    path="/v1/audit",
    summary="The newest lines of the audit log",
    tag="broker",
    handler=_tail,
    parameters=AuditWanted,
    result=AuditTail,
)
