"""An audit in sentences."""

from collections.abc import Iterator

from draftwise.auditing.audit import Audit, Finding
from draftwise.auditing.greedy import Parting
from draftwise.auditing.samples import LEVEL, MIN_SAMPLES

_VERDICTS = {
    Finding.EXACT: "exact: nothing tells speculative decoding of this pair from plain decoding.",
    Finding.ROUNDING: "rounding: the two differ by no more than this engine differs from itself.",
    Finding.FAULT: "fault: speculative decoding of this pair changes the output.",
}


def sentences(audit: Audit) -> Iterator[str]:
    """What was compared, part by part, and the verdict."""
    findings = audit.findings
    yield f"{audit.target} with drafts by {audit.drafter}, temperature {audit.temperature:g}"
    claim = "the same bits" if audit.width_invariant else "logits that round differently"
    yield (
        f"widths     {findings['widths']}: the engine promises {claim} at every width of a pass; "
        f"measured, a logit moves by {audit.noise:.2g} at most."
    )
    equal = audit.prompts - len(audit.partings)
    yield (
        f"greedy     {findings['greedy']}: {equal} of {audit.prompts} outputs, {audit.greedy_tokens} tokens "
        "in all, are those of plain decoding."
    )
    yield from (f"           {_parted(parting)}" for parting in audit.partings)
    positions = audit.positions
    yield (
        f"positions  {findings['positions']}: at {positions.count} positions of drafts the logits differ "
        f"from plain ones by {positions.logits:.2g} at most, the adjusted distributions by "
        f"{positions.probs:.2g}, their total variation by {positions.total_variation:.2g}."
    )
    joint = audit.joint
    if joint is None:
        yield "samples    none at temperature 0."
    else:
        yield (
            f"samples    {findings['samples']}: {joint.samples} samples, {joint.tokens} tokens, "
            f"{joint.accepted} of {joint.drafted} drafted ones accepted; plain decoding itself would be as "
            f"far from its law with p = {joint.p_value:.2g} over {joint.texts} beginnings (a fault is below "
            f"{LEVEL:g})."
        )
        if not joint.drafted:
            yield "           No token was drafted in them, so they say nothing: give other prompts."
        elif not joint.texts:
            yield f"           No beginning came {MIN_SAMPLES} times, so they say nothing: draw more of them."
    yield f"verdict    {_VERDICTS[audit.finding]}"


def _parted(parting: Parting) -> str:
    return (
        f"Prompt {parting.prompt + 1} parts after {parting.position} tokens, where the two largest logits "
        f"are {parting.gap:.2g} apart and the other token's is {parting.deficit:.2g} below the largest."
    )
