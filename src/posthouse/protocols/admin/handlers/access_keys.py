"""Access keys of users: listed, added, removed. Only the call that adds a key is answered with its secret."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.access_keys import (
    LONGEST_KEY,
    LONGEST_SECRET,
    SHORTEST_SECRET,
    AccessKey,
    check_access_key,
    check_secret,
)
from posthouse.broker.access.operations import Operation
from posthouse.model.errors import UnknownUser
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.handlers.users import OfUser, UserName

KeyName = Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY, description="What clients send.")]


class OfAccessKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName
    access_key: KeyName


class AccessKeyView(msgspec.Struct, frozen=True, kw_only=True):
    access_key: KeyName
    created: Annotated[int, Meta(description="In ms since 1970.")]


class AccessKeyList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[AccessKeyView]


class NewAccessKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    access_key: Annotated[KeyName | None, Meta(description="By default the broker makes one.")] = None
    secret: Annotated[
        Annotated[str, Meta(min_length=SHORTEST_SECRET, max_length=LONGEST_SECRET)] | None,
        Meta(description="By default the broker makes one of 240 random bits."),
    ] = None


class AddedAccessKey(msgspec.Struct, frozen=True, kw_only=True):
    access_key: KeyName
    secret: Annotated[str, Meta(description="It is not shown again.")]
    created: Annotated[int, Meta(description="In ms since 1970.")]


async def _list(context: CallContext, parameters: OfUser, body: NoBody) -> AccessKeyList:
    context.require_cluster(Operation.DESCRIBE)
    _check_user(context, parameters.user)
    keys = context.broker.access.access_keys
    return AccessKeyList(items=[_view(each) for each in keys.of(parameters.user)])


def _view(key: AccessKey) -> AccessKeyView:
    return AccessKeyView(access_key=key.name, created=key.created_ms)


async def _add(context: CallContext, parameters: OfUser, body: NewAccessKey) -> AddedAccessKey:
    context.require_cluster(Operation.ALTER)
    if body.access_key is not None:
        check_access_key(body.access_key)
    if body.secret is not None:
        check_secret(body.secret)
    _check_user(context, parameters.user)
    keys = context.broker.access.access_keys
    name = body.access_key or keys.new_name()
    context.guard.note("add-access-key", f"user:{parameters.user}", name)
    made = await keys.add(parameters.user, name, secret=body.secret)
    return AddedAccessKey(access_key=made.name, secret=made.secret, created=made.created_ms)


async def _remove(context: CallContext, parameters: OfAccessKey, body: NoBody) -> None:
    context.require_cluster(Operation.ALTER)
    _check_user(context, parameters.user)
    keys = context.broker.access.access_keys
    if any(each.name == parameters.access_key for each in keys.of(parameters.user)):
        context.guard.note("remove-access-key", f"user:{parameters.user}", parameters.access_key)
    await keys.remove(parameters.user, parameters.access_key)


def _check_user(context: CallContext, name: str) -> None:
    if context.broker.access.users.get(name) is None:
        raise UnknownUser(f"there is no user {name!r}")


ACCESS_KEYS: Final = (
    Endpoint(
        method="GET",
        path="/v1/users/{user}/access-keys",
        summary="List the access keys of a user, without their secrets",
        tag="access",
        handler=_list,
        parameters=OfUser,
        result=AccessKeyList,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/v1/users/{user}/access-keys",
        summary="Add an access key, with which clients sign their requests",
        tag="access",
        description="The answer has the secret, which is not shown again. A user may have ten keys.",
        handler=_add,
        parameters=OfUser,
        body=NewAccessKey,
        result=AddedAccessKey,
        status=201,
        problems=(404, 409),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/users/{user}/access-keys/{access_key}",
        summary="Remove an access key; the connections that use it are closed",
        tag="access",
        handler=_remove,
        parameters=OfAccessKey,
        problems=(404,),
    ),
)
