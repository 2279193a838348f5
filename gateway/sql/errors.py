"""What can be wrong with a query."""

from hot_tier.errors import TierlogError


class SqlNotInstalled(TierlogError):
    """DuckDB is not there."""


class BadQuery(TierlogError):
    """The query is not SQL, is more than one SELECT, or asks for what no query may do."""


class QueryTooSlow(TierlogError):
    """The query did not end within its time."""


class QueryTooLarge(TierlogError):
    """The query needs more memory than a query may have."""


class QueryCancelled(TierlogError):
    """Its sender or an administrator has cancelled it."""


class QueryFailed(TierlogError):
    """The query was right, and did not work nevertheless, such as a division by zero."""


class TooManyQueries(TierlogError):
    """As many queries run and wait as may."""

    retriable = True


class UnknownQuery(TierlogError):
    """No query of this sender has this id."""


class QueryIdTaken(TierlogError):
    """A query with this id is running."""
