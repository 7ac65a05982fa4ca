"""Estimates for a terminal: 95 % error bars as numbers and as bars.

A bar is solid up to the lower end of the error bar and shaded up to its upper end: what is solid is as good as certain.
"""

import math
from typing import Final

from rich.text import Text

from susurrus.agents.frames import number
from susurrus.topics.histogram import Measured

Z95: Final = 1.96
"""Half-width of a 95 % error bar in standard errors; the noise is normal but for its rounding."""
NARROW: Final = 70
"""Terminals with fewer columns get no bars."""
GREY: Final = "bright_black"


def margin(measured: Measured) -> str:
    """The 95 % half-width, in whole numbers where the estimate is one."""
    half = Z95 * measured.std_error
    return number(math.ceil(half) if isinstance(measured.estimate, int) else half)


def upper(measured: Measured) -> float:
    """The upper end of the 95 % error bar."""
    return measured.estimate + Z95 * measured.std_error


def bar(measured: Measured, largest: float, width: int) -> Text:
    """Solid to estimate - 1.96 standard errors, shaded to estimate + 1.96 standard errors; ``largest`` fills the
    width."""
    scale = width / largest if largest > 0 else 0.0
    low = round(max(0.0, measured.estimate - Z95 * measured.std_error) * scale)
    high = round(max(0.0, upper(measured)) * scale)
    solid, shaded = min(low, width), max(0, min(high, width) - min(low, width))
    return Text.assemble(("█" * solid, "cyan"), ("░" * shaded, GREY))
