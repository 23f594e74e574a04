"""HTTP clients for the tests of the admin front end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from posthouse.testing import AsyncBroker

USERS = {"admin": "secret", "ann": "password"}


@asynccontextmanager
async def client(
    broker: AsyncBroker, user: str | None = None, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    auth = None if user is None else (user, USERS[user])
    url = f"http://{broker.admin}"
    async with httpx.AsyncClient(base_url=url, auth=auth, timeout=30, **options) as http:
        yield http


def answered(response: httpx.Response, status: int = 200) -> Any:
    """The body, if the status is right."""
    assert response.status_code == status, response.text
    return response.json() if response.content else None
