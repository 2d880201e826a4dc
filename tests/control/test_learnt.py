"""What adaptive drafting keeps: of a row's text until another begins, of the rate and the costs for all."""

import pytest

from draftwise.control.cost import CostModel
from draftwise.control.learnt import Learnt


def learnt() -> Learnt:
    return Learnt(CostModel(lambda context: {1: 1.0, 2: 1.5}, [lambda context: {1: 0.1}] * 2, constant=True))


def test_rows_and_drafters_stand_apart_until_another_text_begins() -> None:
    known = learnt()
    each = [*known.standings(0), *known.standings(1)]
    assert len({id(standing) for standing in each}) == 4
    assert known.standings(0)[1] is each[1]
    known.forget(0)
    assert known.standings(0)[1] is not each[1]
    assert known.standings(1)[1] is each[3]


def test_the_rate_is_that_of_late_and_at_least_that_of_plain_decoding() -> None:
    known = learnt()
    assert known.rate(plain=1.0) == pytest.approx(1.5)
    for _ in range(500):
        known.count(3, 1.0)
    assert known.rate(plain=1.0) == pytest.approx(3.0, rel=0.1)
    for _ in range(500):
        known.count(1, 4.0)
    assert known.rate(plain=1.0) == 1.0
