"""Why an object cannot be read. None of these ends a query: brokers have the same records."""


class ObjectError(Exception):
    pass


class ObjectStale(ObjectError):
    """The address is no longer valid, or the object is gone: a new manifest may have a better one."""


class ObjectsAway(ObjectError):
    """The object store does not answer, or not to us."""


class ObjectDamaged(ObjectError):
    """The object does not have what the manifest says."""
