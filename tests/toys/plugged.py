"""The command line with the toys plugged in, by one line each: ``python -m tests.toys.plugged worker --config ...``."""

from susurrus.agents.cli.main import app
from susurrus.agents.formats import FORMATS
from susurrus.agents.histogram.columns import COLUMNS
from tests.toys.column import SumOfSquares
from tests.toys.format import MessagePack
from tests.toys.strategy import Frugal, registered

if __name__ == "__main__":
    COLUMNS[SumOfSquares.kind] = SumOfSquares
    FORMATS[MessagePack.name] = MessagePack
    with registered(Frugal):
        app()
