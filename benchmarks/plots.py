"""Plots of benchmarks: the option, and matplotlib without a screen, which only ``.[benchmarks]`` installs."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options, one of which is --plot; without matplotlib the command ends before the work."""
    options = parser.parse_args(argv)
    if options.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install '.[benchmarks]'")
    return options


def pyplot() -> Any:
    """matplotlib's module that draws to files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
