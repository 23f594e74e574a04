"""A try of all that a broker needs of an object store, before it depends on it."""

import contextlib
import os
import uuid

from posthouse.model.errors import DataDamaged
from posthouse.storage.shared.objects.store import ObjectsAway, ObjectsRefused, ObjectStore

_PREFIX = "check"


async def probe(store: ObjectStore, advice: str) -> None:
    """Put, read, list and delete one small object. Raises ObjectsAway (or ObjectsRefused) with `advice`."""
    key = f"{_PREFIX}/{uuid.uuid4().hex}"
    data = os.urandom(64)
    doing = "put"
    try:
        await store.put(key, data)
        doing = "read"
        found = await store.read(key, 16, 32)
        doing = "list"
        listed = {each.key: each.size async for each in store.list(_PREFIX)}
        doing = "delete"
        await store.delete([key])
    except (ObjectsAway, DataDamaged) as error:
        with contextlib.suppress(ObjectsAway):  # the first error tells more
            await store.delete([key])
        kind = ObjectsRefused if isinstance(error, ObjectsRefused) else ObjectsAway
        raise kind(f"cannot {doing} objects in {store.name}: {error}; {advice}") from error
    if found != data[16:48]:
        raise ObjectsRefused(f"{store.name} returned other bytes than were put; {advice}")
    if listed.get(key) != len(data):
        raise ObjectsRefused(f"{store.name} does not list an object that was just put; {advice}")
