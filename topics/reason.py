"""Why a raw record was refused. The numbers, names and messages are public to operators (dead-letter headers, metrics)."""

from enum import IntEnum
from typing import Self


class Reason(IntEnum):
    """0 is a good record. Names are stable; a reason is never reused for something else. message: for operators."""

    message: str

    def __new__(cls, number: int, message: str = "") -> Self:
        """A member. number: its value."""
        reason = int.__new__(cls, number)
        reason._value_, reason.message = number, message
        return reason

    OK = 0, ""
    TOMBSTONE = 1, "the record has no value"
    EMPTY = 2, "the value is empty"  # or white space only
    INVALID_UTF8 = 3, "the value is not Unicode text in UTF-8"  # an escape may be no text, too: a lone surrogate
    NOT_JSON = 4, "the value is not one JSON value"  # for example several values, or a byte order mark
    TOO_DEEP = 5, "the value is nested too deep"  # deeper than MAX_DEPTH
    WRONG_TYPE = 6, "the value is no object, or a field has the wrong type"
    MISSING_USER = 7, "the user is missing or null"  # null only where null_user = "dead-letter"
    MISSING_KEY = 8, "a part of the key is missing or null"  # null only where null_key = "dead-letter"
    MISSING_VALUE = 9, "a measured value is missing or null"
    MISSING_TIME = 10, "the event time is missing or null"
    NOT_FINITE = 11, "a number is not finite"  # or beyond float64
    INTEGER_TOO_LARGE = 12, "an integer does not fit into 64 bits"  # outside [-2^63, 2^64)
    BAD_TIME = 13, "the event time is no instant of the years 1 to 9999 in the configured unit"
    TOO_LARGE = 14, "the user or key is longer than the limit"  # max_key_bytes
    UNDECODABLE = 15, "the value does not follow its registered schema"
    # Set by route:
    BEFORE_FIRST_WINDOW = 16, "the event is older than the pipeline's first window"
    IN_FUTURE = 17, "the event is too far in the future"  # beyond stamp + max_future, or the stamp beyond max_ahead
    # Set where fields are computed from others:
    EXPRESSION_FAILED = 22, "an expression of the configuration fails for the record"
    FILTERED = 23, "the record does not meet input.where"  # no bad input: counted, and no dead letter
    # Set by collect:
    NOT_A_REPORT = 18, "the value is no report of a known version"
    WRONG_THRESHOLD = 19, "the report names a threshold that is unknown or no longer in force"
    IMPOSSIBLE_CODE = 20, "the report's code lies outside what its randomiser can draw"
    LATE = 21, "the report's interval has been published already"
