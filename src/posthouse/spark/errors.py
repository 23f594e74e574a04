"""Errors of the Spark source and sink."""


class SparkError(Exception):
    """Base of these errors. Every message is one sentence that says what to do."""


class WrongOption(SparkError):
    """An unknown option, or an invalid value."""


class WrongSchema(SparkError):
    """Columns that the source does not have, or that the sink does not accept."""


class DataLoss(SparkError):
    """Records that should be read were deleted."""


class StaleEpoch(SparkError):
    """An epoch older than the last committed one."""
