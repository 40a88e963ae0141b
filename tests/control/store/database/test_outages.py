"""An outage is a line at its begin and one once nothing has failed for long, whatever fails and succeeds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.store.database.outages import CALM_S, Outage, outage_after

PAUSES = st.sampled_from([0.0, 0.1, CALM_S - 0.1, CALM_S, 60.0])


@given(st.lists(st.tuples(PAUSES, st.sampled_from([None, "the disk is full", "the database went away"]))))
def test_lines_take_turns_and_each_is_in_its_time(story: list[tuple[float, str | None]]) -> None:
    outage: Outage | None = None
    now, first, last, lasts = 1000.0, 0.0, 0.0, False
    for pause, why in story:
        now += pause
        outage, line = outage_after(outage, why, now)
        if why is not None and not lasts:
            assert line == f"an outage of the database begins: {why}"
            first, lasts = now, True
        elif why is None and lasts and now - last >= CALM_S:
            assert line == f"the outage of the database is over; it took {last - first:.0f} s"
            lasts = False
        else:
            assert line == ""
        last = last if why is None else now
        assert (outage is not None) == lasts
