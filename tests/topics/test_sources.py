"""The numbers of sources: each partition has one, it never changes, and no number is given twice."""

from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.sources import Run, SourceMap

LOOKS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 6)), max_size=12)


@given(LOOKS)
def test_what_is_added_comes_behind_and_changes_no_number(looks: list[tuple[str, int]]) -> None:
    sources, partitions, known = SourceMap(), dict[str, int](), list[tuple[str, int]]()
    for topic, number in looks:
        sources = sources.grown(topic, number)
        new = range(partitions.get(topic, 0), number)
        known += [(topic, partition) for partition in new]
        partitions[topic] = max(number, partitions.get(topic, 0))
        assert list(sources) == known
        assert len(sources) == len(known)
    for number, place in enumerate(known):
        assert sources.place(number) == place
        assert sources.number(*place) == number
    assert sources.place(len(known)) is None
    for topic in ("a", "b", "c"):
        assert sources.number(topic, partitions.get(topic, 0)) is None
        assert sources.partitions(topic) == partitions.get(topic, 0)
    assert sources.topics == tuple(dict.fromkeys(topic for topic, _ in known))
    assert SourceMap.of([list(run) for run in sources.runs]) == sources


def test_partitions_of_one_topic_alone_have_their_own_numbers() -> None:
    sources = SourceMap().grown("raw", 2).grown("raw", 5)
    assert [sources.number("raw", partition) for partition in range(5)] == [0, 1, 2, 3, 4]
    assert sources.runs == (Run("raw", 0, 2), Run("raw", 2, 3))
