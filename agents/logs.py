"""What a worker writes to its log: one line for each event, for an operator, without data.

librdkafka would write from C to standard error, and libraries repeat their lines while a broker is away. Here all lines go
through one handler. A stack trace becomes a type and a place, because its text may hold a record. Lines that repeat are
counted instead of written. ``debug`` shows everything but the text of exceptions. A line is a text for people, or a JSON object
for programs.
"""

import logging
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Final, Literal

from pythonjsonlogger.json import JsonFormatter

_log = logging.getLogger(__name__)
SILENT: Final = logging.Logger("susurrus.silent", level=logging.CRITICAL + 1)
"""The log of clients and servers whose own lines would only repeat ours."""

REPEATS: Final = 2
"""Lines of one kind that are written in ``REPEAT_SECONDS``; the others are counted."""
REPEAT_SECONDS: Final = 60.0
_KINDS: Final = 1_000

_LIBRARIES: Final = ("faust", "aiokafka", "mode", "kafka", "httpx", "httpx2", "httpcore", "httpcore2", "asyncio")
_SOFTER: Final = {logging.CRITICAL: logging.WARNING, logging.ERROR: logging.WARNING, logging.WARNING: logging.INFO}
"""Clients log as errors what they recover from by themselves, and warnings what happens at every rebalance."""
_FENCED: Final = ("fenced", "old epoch")
LogFormat = Literal["text", "json"]
FIELDS: Final = ("event", "stage", "partition", "window", "trigger", "of_triggers", "rows", "seconds")
"""What our own lines may say beside their message, as members of the JSON object: names and public numbers, no user, no key."""


def configure(level: str, form: LogFormat = "text") -> None:
    """Set up the process's log. level: debug, info, warning or error. form: of a line."""
    number = logging.getLevelName(level.upper())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(form))
    handler.addFilter(soften)
    if number > logging.DEBUG:
        handler.addFilter(Repeats())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a line that cannot be written must not end the task that writes it
    # A producer that has been fenced cannot abort, nor need it.
    warnings.filterwarnings("ignore", message="Producer abort_transaction failed", category=RuntimeWarning)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, number) if number > logging.DEBUG else logging.INFO)


def describe(error: BaseException) -> str:
    """Type and place of an exception, or the name of a KafkaError; its text may hold data and stays out of logs."""
    from confluent_kafka import KafkaError, KafkaException  # every page of help loads this module, and needs no Kafka

    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return f"KafkaException {error.args[0].name()}"
    if isinstance(error, KafkaError):
        return f"KafkaError {error.name()}"
    place = getattr(error, "__traceback__", None)
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
    return f"{type(error).__name__}{where}"


def where_threads_are() -> None:
    """A line for every thread: the functions it is in, without a single value."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        places = [
            f"{Path(entry.filename).name}:{entry.lineno} {entry.name}"
            for entry in traceback.extract_stack(frame, limit=12)
        ]
        _log.info("thread %s: %s", names.get(number, number), " < ".join(reversed(places)))


def writes_json() -> bool:
    """Whether this process's log is JSON, so that everything else on standard error should be, too."""
    return any(isinstance(handler.formatter, JsonLine) for handler in logging.getLogger().handlers)


def _formatter(form: LogFormat) -> logging.Formatter:
    if form == "text":
        return OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    return JsonLine(
        ("levelname", "name", "message"), rename_fields={"levelname": "level", "name": "logger"}, timestamp=True
    )


class _WithoutData(logging.Formatter):
    """Exceptions by type and place."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  (logging's name)
        """Type and place of the exception, instead of a stack trace."""
        return f"({describe(ei[1])})" if ei and ei[1] is not None else ""

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  (logging's name)
        """Nothing: a stack may hold data."""
        return ""


class OneLine(_WithoutData):
    """Formats every record as one line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return _one_line(super().format(record))


class JsonLine(_WithoutData, JsonFormatter):
    """Formats every record as one JSON object: timestamp (RFC 3339, UTC), level, logger, message, and our own lines' FIELDS."""

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        """The same without what libraries attach to their records. Where an exception is, follows the message, as in a text."""
        where = message_dict.get("exc_info")
        super().add_fields(log_data, record, {})
        taken = ("timestamp", "level", "logger", "message", *(FIELDS if record.name.startswith("susurrus") else ()))
        kept = {name: log_data[name] for name in taken if name in log_data}
        kept["message"] = _one_line(f"{kept['message']} {where}" if where else kept["message"])
        log_data.clear()
        log_data |= kept


def _one_line(text: str) -> str:
    """Control characters in texts that others sent must not reach a terminal."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


def soften(record: logging.LogRecord) -> bool:
    """Whether an operator should see a record. Lowers the levels of libraries, and cuts their prefixes and exceptions."""
    service = isinstance(record.msg, str) and record.msg.startswith(
        "[^"
    )  # a service of Faust, with its depth in the tree
    if service:
        if record.levelno <= logging.INFO:
            return False
        record.msg = record.msg.partition("]: ")[2]
    if service or record.name.startswith("aiokafka"):
        record.levelno = _SOFTER.get(record.levelno, record.levelno)
    elif record.name == "susurrus.agents.kafka.clients":
        record.levelno = min(record.levelno, logging.WARNING)
    record.levelname = logging.getLevelName(record.levelno)
    if isinstance(record.args, tuple):
        record.args = tuple(
            type(value).__name__ if isinstance(value, BaseException) else value for value in record.args
        )
    return True


class Repeats(logging.Filter):
    """Lets a few lines of a kind pass and counts the rest; the next one that passes says how many. A kind is a logger,
    a message template and its first argument: a task, a node, a facility."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind = (record.name, str(record.msg), str(first))
        now = time.monotonic()
        with self._lock:
            since, number = self._seen.get(kind, (now, 0))
            held = 0
            if now - since >= REPEAT_SECONDS:
                held, since, number = max(0, number - REPEATS), now, 0
            if len(self._seen) >= _KINDS:
                self._seen.clear()  # bounds the memory where a library puts variable text into its templates
            self._seen[kind] = (since, number + 1)
        if number >= REPEATS:
            return False
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} more like it before)", ()
        return True


class ClientLog:
    """What librdkafka clients log to (their ``logger=``). A client logs while it is polled."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def log(self, level: int, template: str, facility: str, client: str, text: str) -> None:
        """Called by confluent-kafka."""
        if any(word in text for word in _FENCED):
            level = logging.DEBUG  # the task logs that another worker has its partition
        self._log.log(level, "Kafka client, %s: %s", facility, text.partition("]: ")[2] or text)
