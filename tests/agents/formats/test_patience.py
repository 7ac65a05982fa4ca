"""How long a record waits for its schema, against the sentence that says it."""

from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.formats.waiting import Patience

PATIENCE = 5
APPENDS = st.lists(st.integers(0, 40), min_size=1, max_size=12).map(sorted)


@given(appended=APPENDS, stamps=st.lists(st.integers(-20, 60), min_size=12, max_size=12), data=st.data())
def test_a_record_waits_from_its_stamp_or_from_when_it_was_first_seen_in_the_log(
    appended: list[int], stamps: list[int], data: st.DataObject
) -> None:
    patience, looks, position = Patience(PATIENCE), list[tuple[int, int]](), 0
    for now in sorted(data.draw(st.sets(st.integers(0, 60), max_size=12))):
        if data.draw(st.booleans()):
            end = sum(moment <= now for moment in appended)
            patience.saw(end, now)
            looks.append((end, now))
        position = data.draw(st.integers(position, len(appended)))
        patience.passed(position)
        for offset in range(position, sum(moment <= now for moment in appended)):
            seen = min([moment for end, moment in looks if end > offset], default=now)
            over = patience.over(offset, stamps[offset], now)
            assert over == (now >= min(stamps[offset], seen) + PATIENCE)
            # Never before a schema that came in time would have been found.
            assert not over or now >= min(stamps[offset], appended[offset]) + PATIENCE
