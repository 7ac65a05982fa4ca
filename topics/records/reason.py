"""Why a raw record was refused. The numbers, names and messages are public to operators (dead-letter headers, metrics).

`susurrus dead-letters` and docs/topics.md show the messages and the advice.
"""

from enum import IntEnum
from typing import Final, Self


class Reason(IntEnum):
    """0 is a good record. Names are stable; a reason is never reused for something else. message: for operators. advice: what
    they can do; read records stay as they are."""

    message: str
    advice: str

    def __new__(cls, number: int, message: str = "", advice: str = "") -> Self:
        """A member. number: its value."""
        reason = int.__new__(cls, number)
        reason._value_, reason.message, reason.advice = number, message, advice
        return reason

    OK = 0, ""
    TOMBSTONE = (
        1,
        "the record has no value",
        "nothing, if the producer deletes keys on purpose; else let it write values",
    )
    EMPTY = 2, "the value is empty", "find the producer that writes empty values"  # or white space only
    INVALID_UTF8 = (
        3,
        "the value is not Unicode text in UTF-8",  # an escape may be no text, too: a lone surrogate
        "let the producer encode its texts in UTF-8, or set input.encoding or input.format to what it writes",
    )
    NOT_JSON = (
        4,
        "the value is not one JSON value",  # for example several values
        "let the producer write one JSON object per record, or set input.format to the format that it writes",
    )
    TOO_DEEP = 5, "the value is nested too deep", "let the producer write flatter records"  # deeper than MAX_DEPTH
    WRONG_TYPE = (
        6,
        "the value is no object, or a named field has another type, as a text has where an object is wanted",
        "compare a record with input.user, input.key, input.time, input.decimals and the columns' fields",
    )
    MISSING_USER = (  # null only where null_user = "dead-letter"
        7,
        "the user is missing or null",
        'correct input.user; if null may be a user, set input.null_user = "value"',
    )
    MISSING_KEY = (  # null only where null_key = "dead-letter"
        8,
        "a part of the key is missing or null",
        'correct input.key; if null may be a key, set input.null_key = "value"',
    )
    MISSING_VALUE = (
        9,
        "a measured value is missing or null",
        "correct the field of the columns (stream.value), or leave such records out by input.where",
    )
    MISSING_TIME = 10, "the event time is missing or null", 'correct input.time, or use input.time = "kafka"'
    NOT_FINITE = 11, "a number is not finite", "let the producer write finite numbers"  # or beyond float64
    INTEGER_TOO_LARGE = (
        12,
        "an integer does not fit into 64 bits",  # outside [-2^63, 2^64)
        "let the producer write such identifiers as texts",
    )
    BAD_TIME = (
        13,
        "the event time is no instant of the years 1 to 9999 in the configured unit or format",
        "correct input.time and input.time_unit, or say with input.time_format how texts are written",
    )
    TIME_WITHOUT_ZONE = (
        46,
        "the event time has no time zone",
        'set input.time_zone to the zone that the producer\'s clock shows, such as "Europe/Berlin" or "UTC"',
    )
    TIME_NOT_A_NUMBER = (
        47,
        "the event time is a text that holds no number, and input.time_unit is a unit of numbers",
        'set input.time_unit = "iso", or say with input.time_format how the text is written',
    )
    TIME_NOT_A_TEXT = (
        48,
        'the event time is a number, and input.time_unit = "iso" or input.time_format wants a text',
        'set input.time_unit to "s", "ms", "us", "ns" or "d", without input.time_format',
    )
    TOO_LARGE = (  # max_key_bytes
        14,
        "the user or key is longer than the limit",
        "group by a shorter field or a computed key, or raise input.max_key_bytes",
    )
    UNDECODABLE = (
        15,
        "the value does not follow its schema, or does not have the framing of input.framing",
        "check that the producer registers its schemas, and that input.format, input.framing and input.message fit what it writes",
    )
    OTHER_TYPE = (  # Protobuf: other message indexes than those of input.message, or none
        24,
        "the value is a message of another type than input.message, or does not say of which",
        "leave other types out by input.where over $envelope.message; else correct input.message, or let the producer write "
        "Confluent's indexes",
    )
    EMPTY_USER = (  # only where empty_user = "dead-letter"
        25,
        "the user is the empty text",
        'let the producer write who it is; if the empty text is a user, set input.empty_user = "value"',
    )
    INEXACT_NUMBER = (  # 9007199254740993.0 reads as ...992: one user would be two, or two one
        26,
        "the user or key is a number of 2^53 or more with a fraction or an exponent, whose last digits may be lost",
        "let the producer write such identifiers as integers or texts",
    )
    # Set by what stands before a format or behind it, and by what a format saw instead of its own:
    COMPRESSED = (
        38,
        "the value is compressed by gzip or zstd",
        'set input.compression = "auto"',
    )
    NOT_DECOMPRESSED = (
        39,
        "the value cannot be decompressed, has more bytes behind it, or is too long when it is",
        "correct input.compression, find the producer of damaged values, or raise input.max_value_bytes",
    )
    UTF16 = (
        40,
        "the value is text in UTF-16",
        'set input.encoding = "utf-16", or let the producer encode its texts in UTF-8',
    )
    MESSAGE_PACK = (
        41,
        "the value is MessagePack",
        'set input.format = "msgpack"',
    )
    OTHER_FIELDS = (  # never which ones
        42,
        "a line has more or fewer fields than input.columns, a quote that does not end, or the text does not match input.pattern",
        "correct input.columns, input.delimiter and input.quote, or input.pattern: it has to match the whole text",
    )
    SEVERAL_LINES = (
        43,
        "the value has several lines, and each would be a record",
        'take them apart: input.each = { of = "$value" }',
    )
    NO_ENVELOPE = (
        44,
        "the value is not in the envelope of input.envelope, or there is no row in it, as in a delete without the row as it was",
        "correct input.envelope, leave deletes out by input.where, or let the database log whole rows (REPLICA IDENTITY FULL)",
    )
    NOT_A_SCALAR = (
        45,
        "a list or an object stands where a text, a number or a truth value is wanted",
        "name a field inside it, take the list apart by input.each, or compute a scalar of it by an expression",
    )
    VALUE_NOT_A_NUMBER = (
        49,
        "a measured value is a text, or something else that is no number",
        "let an expression read the text (TRY_CAST(amount AS DOUBLE)), or correct the field of the columns (stream.value)",
    )
    TIME_NOT_A_KEY = (
        50,
        "the user or key is an instant, which can be written in many ways",
        "compute a text of it by an expression, such as strftime(at, '%Y-%m-%d')",
    )
    # What a refused value looks like (seen.py): a framing that is not the one of input.framing.
    FRAMING_CONFLUENT = (
        32,
        "the value is framed by Confluent's serializers: a zero byte and a schema id of four bytes",
        'set input.framing = "confluent", and input.format to what is framed: avro, json or protobuf',
    )
    FRAMING_CONFLUENT_HEADER = (
        33,
        "a header names the value's schema, as newer serializers of Confluent's do",
        'set input.framing = "confluent-header", and input.format to what the value is: avro, json or protobuf',
    )
    FRAMING_APICURIO = (
        34,
        "the value is framed by Apicurio's serializers: a zero byte and an id of eight bytes",
        'set input.framing = "apicurio", or "apicurio-content-id" if producers write content ids, and input.format to what it is',
    )
    FRAMING_APICURIO_HEADER = (
        35,
        "a header names the value's schema, as Apicurio's serializers do",
        'set input.framing = "apicurio-header", and input.format to what the value is: avro, json or protobuf',
    )
    FRAMING_SINGLE_OBJECT = (
        36,
        "the value is in Avro's single-object encoding: the bytes c3 01 and a fingerprint of eight bytes",
        'set input.format = "avro", input.framing = "single-object" and input.schema_file',
    )
    FRAMING_GLUE = (
        37,
        "the value is framed by AWS Glue's serializers: the byte 03, the compression and a schema version of 16 bytes",
        "no format reads it, because only AWS knows its schemas: let the producers, or a copy of the topic, have another framing",
    )
    # Set by route:
    BEFORE_FIRST_WINDOW = (
        16,
        "the event is older than the pipeline's first window",
        "nothing, if it shall begin there; to publish older events, start a new pipeline with an earlier start.first_window",
    )
    IN_FUTURE = (  # beyond stamp + max_future, or the stamp beyond max_ahead
        17,
        "the event is too far in the future",
        "check the producers' clocks, input.time_unit, and the settings clock.max_ahead, clock.max_future and clock.until",
    )
    WRONG_STAMP = (  # of the record's batch: the broker writes it there as the topic is set at that moment
        27,
        "the topic's message.timestamp.type was another one than clock.kind needs when the record was written",
        "restore the topic's message.timestamp.type; to publish what was written meanwhile, start a new pipeline with the other "
        "clock.kind",
    )
    # Set where records are taken apart (input.each):
    NO_ITEMS = 28, "the record has no item to count"  # no bad input: counted as left out
    NOT_ITEMS = (
        29,
        "what input.each takes apart is no list and no map",
        "correct input.each, or leave such records out by input.where",
    )
    TOO_MANY_ITEMS = (  # MAX_ITEMS
        30,
        "the record has more than 1,048,576 items",
        "let the producer write fewer items into one record",
    )
    # Set where what is beside the value is read:
    UNREADABLE_KEY = (
        31,
        "the record's key does not follow input.key_format",
        "set input.key_format to what the producer writes; susurrus try shows it",
    )
    UNREADABLE_HEADER = (
        54,
        "a header that the configuration names is not text in UTF-8",
        "let the producer write text, or compute with the header's bytes (docs/expressions.md)",
    )
    # Set where fields are computed from others:
    EXPRESSION_FAILED = (
        22,
        "an expression of the configuration fails for the record",
        "let the expression cope with such values (TRY_CAST, CASE), or leave the records out by input.where",
    )
    FILTERED = 23, "the record does not meet input.where"  # no bad input: counted, and no dead letter
    # Set by collect:
    NOT_A_REPORT = (
        18,
        "the value is no report of a known version",
        "find out what else writes to the topic of reports, and run the clients' version that the workers have",
    )
    WRONG_THRESHOLD = (
        19,
        "the report names a threshold that is unknown or no longer in force",
        "let the clients read the topic of thresholds, and restart those that are cut off from it",
    )
    IMPOSSIBLE_CODE = (
        20,
        "the report's code lies outside what its randomiser can draw",
        "give the clients the epsilon, bound and scale of [local]",
    )
    LATE = (
        21,
        "the report's interval has been published already",
        "let the clients send sooner, or start a new pipeline with a larger local.lateness",
    )


LEFT_OUT: Final = frozenset((Reason.FILTERED, Reason.NO_ITEMS))
"""No bad input: such records are counted, and there is no dead letter."""
