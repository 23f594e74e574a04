"""A try of all that a broker needs of an object store, before it depends on it."""

import os
import uuid

from posthouse.storage.shared.objects.store import ObjectMissing, ObjectsAway, ObjectsRefused, ObjectStore

_DIRECTORY = "check"


async def probe(store: ObjectStore, advice: str) -> None:
    """Put, read, list and delete one small object. Raises ObjectsAway (or ObjectsRefused) with `advice`."""
    key = f"{_DIRECTORY}/{uuid.uuid4().hex}"
    data = os.urandom(64)
    doing = "put"
    try:
        await store.put(key, data)
        doing = "read"
        found = await store.read(key, 16, 32)
        doing = "list"
        listed = {each.key: each.size async for each in store.list(_DIRECTORY)}
        doing = "delete"
        await store.delete([key])
    except ObjectsRefused as error:
        raise ObjectsRefused(f"cannot {doing} objects in {store.name}: {error}; {advice}") from error
    except (ObjectsAway, ObjectMissing) as error:
        raise ObjectsAway(f"cannot {doing} objects in {store.name}: {error}; {advice}") from error
    if found != data[16:48]:
        raise ObjectsRefused(f"{store.name} returned other bytes than were put; {advice}")
    if listed.get(key) != len(data):
        raise ObjectsRefused(f"{store.name} does not list an object that was just put; {advice}")
