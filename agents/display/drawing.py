"""Estimates for a terminal: 95 % error bars as numbers and as bars.

A bar is solid up to the lower end of the error bar and shaded up to its upper end: what is solid is as good as certain.
"""

import math
from typing import Final

from rich.text import Text

from susurrus.agents.frames import interval_text, number
from susurrus.topics.histogram import Measured

Z95: Final = 1.96
"""Half-width of a 95 % error bar in standard errors; the noise is normal but for its rounding."""
NARROW: Final = 70
"""Terminals with fewer columns get no bars."""
GREY: Final = "bright_black"


def margin(measured: Measured) -> str:
    """The 95 % half-width, in whole numbers where the estimate is one; or the interval's ends, where these are published."""
    if measured.lower is not None:
        return interval_text(measured)
    half = Z95 * measured.std_error
    return number(math.ceil(half) if isinstance(measured.estimate, int) else half)


def upper(measured: Measured) -> float:
    """The upper end of the 95 % error bar."""
    return measured.estimate + Z95 * measured.std_error if measured.upper is None else measured.upper


def lower(measured: Measured) -> float:
    """Its lower end."""
    return measured.estimate - Z95 * measured.std_error if measured.lower is None else measured.lower


def bar(measured: Measured, largest: float, width: int) -> Text:
    """Solid to the lower end of the error bar, shaded to its upper end; ``largest`` fills the width."""
    scale = width / largest if largest > 0 else 0.0
    low = round(max(0.0, lower(measured)) * scale)
    high = round(max(0.0, upper(measured)) * scale)
    solid, shaded = min(low, width), max(0, min(high, width) - min(low, width))
    return Text.assemble(("█" * solid, "cyan"), ("░" * shaded, GREY))
