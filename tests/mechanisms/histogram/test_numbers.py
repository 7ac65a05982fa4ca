"""What a mix-up of a window's two numbers, of an interval and of a trigger would do, and that mypy refuses each.

`make types` checks this file with warn_unused_ignores: an ``ignore`` below that is not needed any more is an error there. So
each of these lines shows that mypy would have refused it.
"""

from susurrus.mechanisms.calendar import Calendar, Interval, Trigger, WindowIndex, WindowStart
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.windows import FixedWindows

HOUR = 3_600_000
CALENDAR = Calendar(windows=FixedWindows(origin=0, length_ms=24 * HOUR), origin=0, trigger_every=HOUR)
SOURCE = NoiseSource(bytes(range(32)), epoch=b"epoch", config=b"config", pipeline="numbers")
INDEX, INTERVAL, TRIGGER = WindowIndex(20_000), Interval(480_005), Trigger(6)


def test_a_window_has_one_noise_and_its_start_names_another() -> None:
    start = CALENDAR.window_start(INDEX)
    noise = SOURCE.window(INDEX).labels("sum", [b"1"])
    other = SOURCE.window(start).labels("sum", [b"1"])  # type: ignore[arg-type]
    assert noise.tobytes() == SOURCE.window(CALENDAR.window_at(start)).labels("sum", [b"1"]).tobytes()
    assert noise.tobytes() != other.tobytes()


def test_each_swap_is_another_result() -> None:
    start = CALENDAR.window_start(INDEX)
    assert CALENDAR.window_start(start) != start  # type: ignore[arg-type]
    assert CALENDAR.first_interval(start) != CALENDAR.first_interval(INDEX)  # type: ignore[arg-type]
    assert CALENDAR.trigger(INDEX, INTERVAL) == TRIGGER
    assert CALENDAR.trigger(INTERVAL, INDEX) != TRIGGER  # type: ignore[arg-type]
    assert CALENDAR.interval_of(INDEX, TRIGGER) == INTERVAL
    assert CALENDAR.interval_of(TRIGGER, INDEX) != INTERVAL  # type: ignore[arg-type]
    assert CALENDAR.boundary(TRIGGER) != CALENDAR.boundary(INTERVAL)  # type: ignore[arg-type]
    assert CALENDAR.oldest_open(INDEX) != CALENDAR.oldest_open(INTERVAL)  # type: ignore[arg-type]


def test_a_plain_integer_of_a_record_must_be_named_first() -> None:
    of_a_record: int = CALENDAR.window_start(INDEX)
    assert CALENDAR.window_at(WindowStart(of_a_record)) == INDEX
    CALENDAR.window_start(of_a_record)  # type: ignore[arg-type]
    CALENDAR.last_interval(of_a_record)  # type: ignore[arg-type]
    CALENDAR.interval_of(INDEX, of_a_record)  # type: ignore[arg-type]
