"""Users: listed, created or given another password, deleted."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.users import User, check_name, check_password
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns

UserName = Annotated[str, Meta(min_length=1, max_length=255, description="Name of the user.")]


class OfUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    superuser: Annotated[bool, Meta(description="May do everything; see the setting superusers.")]
    mechanisms: Annotated[list[str], Meta(description="SCRAM mechanisms that the user can log in with.")]


class PasswordBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    password: Annotated[str, Meta(min_length=1, max_length=1024)]


def view(context: CallContext, user: User) -> UserView:
    return UserView(
        name=user.name,
        superuser=user.name in context.settings.superusers,
        mechanisms=sorted(map(str, user.verifiers)),
    )


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[UserView]:
    context.require_cluster(Operation.DESCRIBE)
    users = context.broker.access.users

    def item(name: str) -> UserView | None:
        user = users.get(name)
        return None if user is None else view(context, user)

    return await page_in_turns([user.name for user in users], paging, item, sees=lambda name: True)


async def _set(context: CallContext, parameters: OfUser, body: PasswordBody) -> UserView:
    context.require_cluster(Operation.ALTER)
    users = context.broker.access.users
    check_name(parameters.user)
    check_password(body.password)
    context.guard.note("set-credential", f"user:{parameters.user}")
    await users.set_password(parameters.user, body.password)
    return view(context, users.get(parameters.user) or User(parameters.user))


async def _delete(context: CallContext, parameters: OfUser, body: NoBody) -> None:
    context.require_cluster(Operation.ALTER)
    users = context.broker.access.users
    if users.get(parameters.user) is not None:
        context.guard.note("delete-credential", f"user:{parameters.user}")
    await users.delete(parameters.user)


USERS: Final = (
    Endpoint(
        method="GET",
        path="/v1/users",
        summary="List users",
        tag="access",
        handler=_list,
        parameters=Paging,
        result=Page[UserView],
    ),
    Endpoint(
        method="PUT",
        path="/v1/users/{user}",
        summary="Create a user, or set another password; the user's connections are closed",
        tag="access",
        handler=_set,
        parameters=OfUser,
        body=PasswordBody,
        result=UserView,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/users/{user}",
        summary="Delete a user; the user's connections are closed",
        tag="access",
        handler=_delete,
        parameters=OfUser,
        problems=(404,),
    ),
)
