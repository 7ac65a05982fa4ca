"""Why a raw record was refused. The numbers and names are public to operators (dead-letter headers, metrics)."""

from enum import IntEnum


class Reason(IntEnum):
    """0 is a good record. Names are stable; a reason is never reused for something else."""

    OK = 0
    TOMBSTONE = 1  # null value
    EMPTY = 2  # no bytes, or white space only
    INVALID_UTF8 = 3  # bytes that are not UTF-8, or escapes that are no Unicode text (lone surrogates)
    NOT_JSON = 4  # also a byte order mark, trailing characters, several values
    TOO_DEEP = 5  # nested deeper than MAX_DEPTH
    WRONG_TYPE = 6  # not an object; a user or key that is no scalar; a value that is no number
    MISSING_USER = 7  # absent, or null where null_user = "dead-letter"
    MISSING_KEY = 8  # absent, or null where null_key = "dead-letter"
    MISSING_VALUE = 9  # absent or null
    MISSING_TIME = 10  # absent or null
    NOT_FINITE = 11  # NaN, Infinity, or a number beyond float64
    INTEGER_TOO_LARGE = 12  # outside [-2^63, 2^64)
    BAD_TIME = 13  # no instant of the years 1 to 9999 in the configured unit
    TOO_LARGE = 14  # a user or key longer than max_key_bytes
    UNDECODABLE = 15  # not what the schema registry's schema says
    BEFORE_FIRST_WINDOW = 16  # set by route: the event is older than the pipeline
    IN_FUTURE = 17  # set by route: the event time is beyond stamp + max_future, or the stamp beyond max_ahead
    NOT_A_REPORT = 18  # set by collect: not 23 bytes of a version and phase that exist
    WRONG_THRESHOLD = 19  # set by collect: the report names a threshold that is unknown or no longer in force
    IMPOSSIBLE_CODE = 20  # set by collect: the client's randomiser cannot have drawn this code
    LATE = 21  # set by collect: the report's interval has been published
