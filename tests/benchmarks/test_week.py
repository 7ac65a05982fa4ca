"""The figure of a week is drawn from the measured rows, hour by hour."""

import math

import week


def test_a_curve_has_every_hour_of_every_day_and_ends_at_midnight():
    def day(number: int, variant: str) -> dict:
        hours = [{"usable": 10 * number + hour, "l1": 3 * hour, "records": 4 * hour} for hour in range(1, 25)]
        return {"day": number, "variant": variant, "hours": hours}

    rows = [day(2, "forgets"), day(1, "forgets"), day(1, "and moves shares")]
    at, usable, error = week.curve(rows, "forgets")
    assert len(at) == len(usable) == len(error) == 2 * 25
    assert [at[0], at[23]] == [1 / 24, 1]
    assert math.isnan(at[24])
    assert usable[25] == 21
    assert error[30] == 0.75


def test_it_is_drawn_from_what_is_measured(tmp_path):
    path = tmp_path / "week.png"
    assert week.main([str(path)]) == 0
    assert path.stat().st_size > 20_000
