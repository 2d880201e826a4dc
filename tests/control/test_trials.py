"""What does not seem to pay is tried as far as the allowance goes, and ever more seldom where it fails."""

from draftwise.control.trials import Trials


def after(trials: Trials, num_steps: int, seconds: float = 1.0) -> Trials:
    for _ in range(num_steps):
        trials.step(seconds, 1.0)
    return trials


def test_a_share_of_the_time_may_be_lost() -> None:
    trials = Trials(1)
    assert not trials.affords(0.1)
    assert not after(trials, 9).affords(0.1)
    assert after(trials, 2).affords(0.1)
    assert not trials.affords(0.12)


def test_what_is_lost_has_to_be_earned_anew_and_what_is_won_pays_for_more() -> None:
    trials = after(Trials(1), 50)
    trials.won(-0.6)
    assert not after(trials, 9).affords(0.0)
    assert after(trials, 2).affords(0.0)
    trials.won(0.3)
    assert trials.affords(0.3)


def test_the_allowance_of_long_waits_is_bounded() -> None:
    assert not after(Trials(1), 10_000).affords(4.1)


def test_the_cheapest_of_those_that_are_due_is_tried() -> None:
    trials = after(Trials(3), 50)
    assert trials.due({0: 0.3, 1: 0.2, 2: 0.4}) == 1
    assert trials.due({0: 0.6, 2: 0.7}) is None
    assert trials.due({}) is None


def test_a_drafter_that_fails_waits_twice_as_long() -> None:
    trials, waits = after(Trials(2), 100), []
    for _ in range(8):
        trials.step(1.0, 1.0)
        trials.drafted(0, failed=True)
        waits.append(0)
        while trials.due({0: 0.0}) is None:
            assert trials.due({1: 0.0}) == 1  # the other does not wait
            waits[-1] += 1
            trials.step(1.0, 1.0)
    assert waits == [2, 4, 8, 16, 32, 32, 32, 32]
    trials.drafted(0, failed=False)
    assert trials.due({0: 0.0}) is None
    assert after(trials, 1).due({0: 0.0}) == 0
