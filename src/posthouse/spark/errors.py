"""What can go wrong between Spark and the log."""


class SparkError(Exception):
    """The root of them. Every message is one sentence that says what to do."""


class WrongOption(SparkError):
    """An option that does not exist, or with a value that it cannot have."""


class WrongSchema(SparkError):
    """Columns that the source does not have, or that the sink does not take."""


class DataLoss(SparkError):
    """Records that should be read are gone."""


class StaleEpoch(SparkError):
    """An epoch to be written after a later one was committed."""
