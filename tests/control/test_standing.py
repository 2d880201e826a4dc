from draftwise.control.standing import Standing


def test_reading_is_worth_what_it_wins_a_token_times_the_tokens_that_are_left() -> None:
    """Of a token more than there were, in which nothing was won."""
    standing = Standing()
    assert standing.is_worth(10.0, lead=1.0, budget=20)
    assert not standing.is_worth(10.0, lead=1.0, budget=19)
    standing.misses(lead=1.0, num_tokens=4)
    assert standing.is_worth(10.0, lead=1.0, budget=30)
    assert not standing.is_worth(10.0, lead=1.0, budget=29)


def test_what_was_missed_is_counted_from_the_last_draft() -> None:
    standing = Standing()
    standing.misses(lead=0.0, num_tokens=100)
    assert not standing.is_worth(10.0, lead=1.0, budget=20)
    standing.drafts(num_read=100)
    assert standing.num_read == 100
    assert standing.is_worth(10.0, lead=1.0, budget=20)


def test_nothing_to_read_is_always_worth_it() -> None:
    assert Standing().is_worth(0.0, lead=0.0, budget=1)
