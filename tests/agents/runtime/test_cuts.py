"""A cut closes its intervals once everything below it has been read, whatever else lies ahead."""

from susurrus.agents.finding import waits
from susurrus.agents.runtime.cuts import Cuts

PLACE = "topic=raw partition=1"


def test_an_interval_closes_when_its_cut_is_reached_and_is_asked_for_once() -> None:
    cuts = Cuts()
    assert cuts.stall(0, PLACE) is None
    assert cuts.wanted(5, 4)
    cuts.asked(5, 100)
    assert not cuts.wanted(5, 4)
    assert cuts.wanted(6, 4)
    cuts.asked(7, 250)
    assert cuts.passed(99, 4) == 4
    assert cuts.stall(99, PLACE) == waits(
        "input",
        "topic=raw partition=1, read up to offset=99; interval=5 closes at offset=100; a producer's transaction is open there, or "
        "there is much to read",
        "if it stays, end the transaction (kafka-transactions.sh find-hanging, then abort)",
    )
    assert cuts.passed(100, 4) == 5
    assert cuts.passed(250, 5) == 7
    assert cuts.ahead == []
    assert not cuts.wanted(7, 7)


def test_a_cut_that_was_overtaken_closes_nothing_again() -> None:
    cuts = Cuts()
    cuts.asked(5, 100)
    assert cuts.passed(100, 9) == 9
