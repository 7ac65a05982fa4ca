"""What an operator should know of the published columns: how each is computed, and which need many records.

`config check`, `explain` and `plan` say it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from susurrus.agents.histogram.columns import Layout
from susurrus.agents.histogram.quantile_needs import quantile_needs
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.strategy import Strategy


def about_columns(layout: Layout, strategy: Strategy[Any]) -> Iterator[tuple[str, str]]:
    """(subject, sentence) of each. They follow from public constants."""
    for column in layout.published:
        if (formula := layout.formula(column)) is not None:
            yield "computed", f"{column.column.name} = {formula}"
    levels = strategy.by_level
    for level in levels:
        name = "" if level.plan.part is None or len(levels) == 1 else f"{level.plan.part.level}: "
        yield from ((subject, name + sentence) for subject, sentence in _of_level(layout, level))


def _of_level(layout: Layout, strategy: Strategy[Any]) -> Iterator[tuple[str, str]]:
    """What the noise of one grouping decides."""
    yield from _shares(layout, strategy)
    try:
        std_errors = strategy.standard_errors()[-1]
    except ConfigurationError:  # a strategy of someone else's that cannot say
        return
    for column in layout.published:
        if column.column.takes_values:
            error = column.rows(np.zeros((1, len(std_errors)), np.int64), std_errors[None]).std_error
            half = f"{1.96 * float(np.asarray(error).max()):.3g}"
            yield "noise", f"{column.column.name}: ± {half} at a window's last trigger (95 %)"
        if (records := column.column.least_records(std_errors[list(column.sources)])) is not None:
            yield (
                "needs",
                f"{column.column.name}: about {records:,.0f} records of a key, {column.column.purpose}",
            )
    yield from (("needs", sentence) for sentence in quantile_needs(layout, std_errors))


def _shares(layout: Layout, strategy: Strategy[Any]) -> Iterator[tuple[str, str]]:
    """Of which columns the budget is, where there are several."""
    shares = type(strategy).shares(strategy.plan)
    named = [f"{column.name} {share:.3g}" for column, share in zip(layout.measured, shares, strict=True)]
    rest = "; selection has the rest" if sum(shares) < 0.999 else ""
    if len(named) > 1:
        yield "shares", f"{', '.join(named)} of the squared noise budget{rest}"
