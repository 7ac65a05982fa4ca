"""What JSON cannot say, by a schema of Kafka Connect in the record: bytes, decimals, dates and times.

The types are those of Kafka Connect (org.apache.kafka.connect.data, in its API documentation) and of Debezium ("Temporal types" and
"Decimal types" in its connectors' documentation). A value that its type cannot hold stays as it was: PostgreSQL's `infinity`, which
Debezium writes as a number beyond all years, is no reason to lose a record for a field that nobody asked for.

Fractions are cut. Debezium's timestamps without a zone become datetimes without one, as they are in the database.
"""

from binascii import a2b_base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from susurrus.agents.formats.avro_guard import LONGEST_DECIMAL

_DAY: Final = date(1970, 1, 1)
_INSTANT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL: Final = datetime(1970, 1, 1)
_FULL_DAY: Final = timedelta(days=1)
_WIDEST_SCALE: Final = 1_000
"""The most digits behind the point, or zeros before it. Databases allow fewer."""
_LONGEST_SCALE: Final = len(str(-_WIDEST_SCALE))


def converted(value: Any, schema: Any) -> Any:
    """A value with the types of its schema. It may change the lists and objects of the value. The time is linear in both."""
    return _Conversion().of(value, schema)


def decimal(digits: bytes, scale: int) -> Decimal:
    """An exact decimal. digits: two's complement, big-endian. Raises ValueError."""
    if not digits or len(digits) > LONGEST_DECIMAL or not -_WIDEST_SCALE <= scale <= _WIDEST_SCALE:
        raise ValueError("no decimal of sense")
    return Decimal(f"{int.from_bytes(digits, 'big', signed=True)}E{-scale}")


def from_base64(text: str) -> bytes:
    """The bytes of a text in base64. Raises ValueError."""
    return a2b_base64(text, strict_mode=True)


class _Conversion:
    """Of one record. Each schema in it is looked through once, however many values have it."""

    def __init__(self) -> None:
        self._fields: dict[int, dict[str, Any]] = {}

    def of(self, value: Any, schema: Any) -> Any:
        # One frame of Python's a level: values nest as deep as JSON may.
        if value is None or not isinstance(schema, dict):
            return value
        name, kind = schema.get("name"), schema.get("type")
        read = _READERS.get(name) if isinstance(name, str) else None
        if read is None and kind == "bytes":
            read = _bytes
        if read is not None:
            try:
                return read(value, schema)
            except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
                return value
        if kind == "struct" and isinstance(value, dict):
            fields = self._fields_of(schema)
            for key, inner in value.items():
                if key in fields:
                    value[key] = self.of(inner, fields[key])
        elif kind == "map" and isinstance(value, dict):
            for key, inner in value.items():
                value[key] = self.of(inner, schema.get("values"))
        elif kind == "array" and isinstance(value, list):
            for index, inner in enumerate(value):
                value[index] = self.of(inner, schema.get("items"))
        return value

    def _fields_of(self, schema: dict[str, Any]) -> dict[str, Any]:
        if id(schema) not in self._fields:
            found: dict[str, Any] = {}
            fields = schema.get("fields")
            for field in fields if isinstance(fields, list) else ():
                if isinstance(field, dict) and isinstance(name := field.get("field"), str):
                    found[name] = field
            self._fields[id(schema)] = found
        return self._fields[id(schema)]


def _bytes(value: Any, schema: Mapping[str, Any]) -> bytes:
    return from_base64(value)


def _decimal(value: Any, schema: Mapping[str, Any]) -> Decimal:
    return decimal(from_base64(value), _scale(schema["parameters"]["scale"]))


def _scale(text: str) -> int:
    """As Connect writes it. What else `int` takes (digits of other scripts, spaces) would follow the version of Python."""
    if len(text) > _LONGEST_SCALE or not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ValueError("no scale")
    return int(text)


def _variable_decimal(value: Any, schema: Mapping[str, Any]) -> Decimal:
    return decimal(from_base64(value["value"]), _integer(value["scale"]))


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _days(value: Any, schema: Mapping[str, Any]) -> date:
    return _DAY + timedelta(days=_integer(value))


def _since(origin: datetime, *, per_second: int) -> Callable[[Any, Mapping[str, Any]], datetime]:
    """Reads how many of the parts of a second have passed since an instant."""

    def read(value: Any, schema: Mapping[str, Any]) -> datetime:
        return origin + timedelta(microseconds=_integer(value) * 1_000_000 // per_second)

    return read


def _since_midnight(*, per_second: int) -> Callable[[Any, Mapping[str, Any]], time]:
    def read(value: Any, schema: Mapping[str, Any]) -> time:
        passed = timedelta(microseconds=_integer(value) * 1_000_000 // per_second)
        if not timedelta(0) <= passed < _FULL_DAY:
            raise ValueError("no time of day")
        return (_LOCAL + passed).time()

    return read


_READERS: Final[dict[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "org.apache.kafka.connect.data.Date": _days,
    "org.apache.kafka.connect.data.Time": _since_midnight(per_second=1_000),
    "org.apache.kafka.connect.data.Timestamp": _since(_INSTANT, per_second=1_000),
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    "io.debezium.time.Date": _days,
    "io.debezium.time.Time": _since_midnight(per_second=1_000),
    "io.debezium.time.MicroTime": _since_midnight(per_second=1_000_000),
    "io.debezium.time.NanoTime": _since_midnight(per_second=1_000_000_000),
    "io.debezium.time.Timestamp": _since(_LOCAL, per_second=1_000),
    "io.debezium.time.MicroTimestamp": _since(_LOCAL, per_second=1_000_000),
    "io.debezium.time.NanoTimestamp": _since(_LOCAL, per_second=1_000_000_000),
}
"""By the name of the type. Debezium's types with a zone (ZonedTimestamp, ZonedTime) are texts, and stay such."""
