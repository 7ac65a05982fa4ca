"""Released numbers as a table of columns: for a terminal, as dictionaries, for Arrow and for pandas.

Readers of every kind of pipeline make a Frame of what they have read. Instants are ints of milliseconds inside, RFC 3339 texts in
dictionaries, and real timestamps in Arrow and pandas.
"""

import contextlib
import io
import json
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.mechanisms.propagation import half_width
from susurrus.topics.histogram import Measured
from susurrus.topics.records.zones import local_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

Column = Sequence[Any] | npt.NDArray[Any]

_ROWS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Frame:
    """Columns of one length by name, lists or arrays. instants: names of columns that hold milliseconds since the Unix epoch.
    time_zone: on whose clocks they are shown, by default UTC's.

    NaN, where there is no number, is None in dictionaries and null in Arrow.
    """

    columns: Mapping[str, Column]
    instants: frozenset[str] = frozenset()
    time_zone: str | None = None

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary of Python's own types for each row."""
        lists = {name: _plain(column) for name, column in self.columns.items()}
        for name in self.instants & lists.keys():
            lists[name] = [local_text(self.time_zone, instant) for instant in lists[name]]
        return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]

    def to_arrow(self) -> "pyarrow.Table":
        """Raises SusurrusError where pyarrow is not installed."""
        try:
            import pyarrow as arrow
        except ImportError:
            raise _missing("pyarrow", "parquet") from None
        return arrow.table({
            name: arrow.array(_plain(column), arrow.timestamp("ms", self.time_zone or "UTC"))
            if name in self.instants
            else arrow.array(column, from_pandas=True) if isinstance(column, np.ndarray) else arrow_array(arrow, column)
            for name, column in self.columns.items()
        })  # fmt: skip

    def to_pandas(self) -> "pandas.DataFrame":
        """Raises SusurrusError where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise _missing("pandas", "pandas") from None
        columns: dict[str, Any] = dict(self.columns)
        for name in self.instants & columns.keys():
            found = pandas.DatetimeIndex(np.array(columns[name], "datetime64[ms]")).tz_localize("UTC")
            columns[name] = found if self.time_zone is None else found.tz_convert(self.time_zone)
        return pandas.DataFrame(columns)


class Tabular(ABC):
    """What can be shown and handed on as a table of released numbers.

    confidence: of the intervals between ``<column>_lower`` and ``<column>_upper``, for normal noise. They are not cut at 0.
    """

    @abstractmethod
    def frame(self, confidence: float = 0.95) -> Frame:
        """All rows. Raises ConfigurationError for a confidence outside (0, 1)."""

    @abstractmethod
    def head(self) -> dict[str, Any]:
        """What all rows have in common, as JSON values."""

    @abstractmethod
    def table(self, limit: int = _ROWS_SHOWN, *, confidence: float = 0.95, width: int | None = None) -> str:
        """The first rows as text, with error bars. width: columns of the terminal, by default those there are."""

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """JSON values: what all rows have in common, and ``rows``, a dictionary each."""
        head = self.head()
        rows = [{name: of for name, of in row.items() if name not in head} for row in self.frame(confidence).rows()]
        return {**head, "rows": rows}

    def to_arrow(self, confidence: float = 0.95) -> "pyarrow.Table":
        """One row per released row. Raises SusurrusError where pyarrow is not installed."""
        return self.frame(confidence).to_arrow()

    def to_pandas(self, confidence: float = 0.95) -> "pandas.DataFrame":
        """One row per released row. Raises SusurrusError where pandas is not installed."""
        return self.frame(confidence).to_pandas()

    def __str__(self) -> str:
        return self.table()


def with_interval(name: str, estimate: Column, std_error: Column, confidence: float) -> dict[str, npt.NDArray[Any]]:
    """Columns of an estimate, its standard error and its interval. Raises ConfigurationError for a confidence outside (0, 1)."""
    estimates, errors = np.asarray(estimate), np.asarray(std_error, np.float64)
    margin = margin_of(confidence) * errors
    return {
        name: estimates,
        f"{name}_std_error": errors,
        f"{name}_lower": estimates - margin,
        f"{name}_upper": estimates + margin,
    }


def margin_of(confidence: float) -> float:
    """Standard errors to either side of an interval. Raises ConfigurationError outside (0, 1)."""
    try:
        return half_width(confidence)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def measured_columns(name: str, measured: Sequence[Measured | None], confidence: float) -> dict[str, Any]:
    """Estimate, standard error and interval; NaN where there is none."""
    pairs = [(np.nan, np.nan) if of is None else (of.estimate, of.std_error) for of in measured]
    return with_interval(name, [pair[0] for pair in pairs], [pair[1] for pair in pairs], confidence)


def measured_texts(name: str, measured: Sequence[Measured | None], confidence: float) -> list[tuple[str, list[str]]]:
    """Estimates and half-widths; nothing where there is none."""
    reach = margin_of(confidence)
    cells = [("", "") if of is None else measured_text(of.estimate, of.std_error, reach) for of in measured]
    return [(name, [cell[0] for cell in cells]), (f"± {100 * confidence:.4g} %", [cell[1] for cell in cells])]


def shown_of(shown: int, there: int) -> str:
    """How many of the rows a table shows."""
    return f", the last {shown:,} shown" if shown < there else ""


def text_table(
    title: str, labels: Mapping[str, Sequence[str]], numbers: Sequence[tuple[str, Sequence[str]]], width: int | None
) -> str:
    """A title and a table: labels by heading, which are shortened where they do not fit, then numbers with theirs."""
    if width is None:
        width = shutil.get_terminal_size((100, 24)).columns
    table = Table(box=None, pad_edge=False)
    for name in labels:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name, _ in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for cells in zip(*labels.values(), *(column for _, column in numbers), strict=True):
        table.add_row(*cells)
    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None, markup=False, highlight=False, emoji=False)
    console.print(Text(title, overflow="ellipsis", no_wrap=True), table, sep="\n")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def number(value: float) -> str:
    """A number with thousands separators and no more digits than mean something."""
    if isinstance(value, int) or abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def key_text(key: Any) -> str:
    """A key as a person reads it: texts without quotes, composite keys joined; control characters never reach the
    terminal."""
    parts = key if isinstance(key, list) else [key]
    texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
    return " · ".join("".join(c if c.isprintable() else "�" for c in text) for text in texts)


def measured_text(estimate: float, std_error: float, reach: float) -> tuple[str, str]:
    """An estimate and the half-width of its interval, in whole numbers where the estimate is one. reach: standard errors."""
    half = reach * std_error
    whole = float(estimate).is_integer()
    return number(estimate), number(math.ceil(half) if whole else half)


def interval_text(measured: Measured) -> str:
    """The ends of an interval that is published with its estimate, at 95 %."""
    assert measured.lower is not None
    assert measured.upper is not None
    return f"{number(measured.lower)} to {number(measured.upper)}"


def arrow_array(arrow: Any, values: Sequence[Any]) -> Any:
    """A column of the values' own type: texts, booleans, integers or numbers. Where they differ, of their texts."""
    kinds = {type(value) for value in values if value is not None}
    wanted = {
        frozenset({bool}): [arrow.bool_()],
        frozenset({int}): [arrow.int64(), arrow.uint64()],  # a key may be as large as 2^64 - 1
        frozenset({float}): [arrow.float64()],
        frozenset({int, float}): [arrow.float64()],
    }
    for kind in wanted.get(frozenset(kinds), []):
        with contextlib.suppress(arrow.ArrowInvalid, OverflowError):  # it does not hold them exactly
            return arrow.array(values, kind)
    return arrow.array([None if value is None else text_of(value) for value in values], arrow.string())


def text_of(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json_of(value)


def json_of(value: Any) -> str:
    """JSON without spaces, in Unicode."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(column: Column) -> list[Any]:
    values = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def _missing(package: str, extra: str) -> SusurrusError:
    return SusurrusError(f'{package} is not installed: `pip install "susurrus[{extra}]"`, or use to_dict()')
