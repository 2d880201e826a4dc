"""What becomes of each guess, on models whose distributions are known."""

from draftwise.drafters.draft_model import DraftModel
from draftwise.models.tabular import TabularModel
from draftwise.paper.pictures import COLOURS, figure_1, figure_5
from draftwise.paper.steps import SAMPLED, run_steps, token_by_token

TARGET = TabularModel.random(5, 1, seed=1)
DRAFT = TabularModel.random(5, 1, seed=2)


def test_figure_1_tells_what_became_of_each_guess() -> None:
    steps = run_steps(TARGET, (0, 1), DraftModel(DRAFT), 3, 30, SAMPLED)
    lines = token_by_token(steps, lambda token_ids: f"<{token_ids[0]}>")
    assert {origin for line in lines for _, origin in line} == set(COLOURS)
    for step, line in zip(steps, lines, strict=True):
        origins = [origin for _, origin in line]
        assert origins.count("accepted") == min(step.num_accepted, len(step.emitted))
        rejected = [piece for piece, origin in line if origin == "rejected"]
        if step.num_accepted < len(step.drafted):
            assert rejected == [f"<{step.drafted[step.num_accepted]}>"]
            assert origins[-1] == "recovered"
        else:
            assert not rejected
    figure_1(lines)
    figure_5({})
