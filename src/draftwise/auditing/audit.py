"""`audit`: greedy agreement, distributions and joint samples of a pair, and what they say together."""

from collections.abc import Iterator
from collections.abc import Sequence as Tokens
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import inf
from time import perf_counter
from typing import Any

from draftwise import checks
from draftwise.auditing.greedy import Parting, greedy_output, parting
from draftwise.auditing.plain import PlainReader, noise
from draftwise.auditing.positions import PositionAudit, Positions
from draftwise.auditing.samples import LEVEL, Counts, Joint, followers, p_value
from draftwise.decoding import generate, stream
from draftwise.drafters.base import Drafter, refuse_no_drafter
from draftwise.drafters.overheard import Overheard
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel
from draftwise.progress import Progress, shown
from draftwise.prompt import Prompt
from draftwise.request import Request
from draftwise.sampling import SamplingParams
from draftwise.sequence import Sequence
from draftwise.types import Generation

# Texts that repeat themselves, so that any drafter has something to guess from.
PROMPTS = (
    "one two three one two three one two three one two",
    "The cat sat on the mat. The dog sat on the mat. The cat sat on the",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a",
    "Roses are red, violets are blue. Roses are red, violets are",
)
SAMPLE_TOKENS = 5
# Noise is measured at some positions, and is a little larger at the worst of others.
MARGIN = 8.0


class Finding(StrEnum):
    """What was found: no difference at all, none but rounding, or one that rounding does not explain."""

    EXACT = "exact"
    ROUNDING = "rounding"
    FAULT = "fault"

    @classmethod
    def of(cls, difference: float, rounding: float) -> "Finding":
        """`rounding`: the largest difference that is no fault."""
        return cls.EXACT if difference == 0 else cls.ROUNDING if difference <= rounding else cls.FAULT


@dataclass(frozen=True, slots=True)
class Audit:
    """What was compared, and what came of it; logits are in nats.

    `noise`: how far the engine's logits move with the width of a pass, without any speculation. `joint`: None
    at temperature 0, where greedy output says it all.
    """

    target: str
    drafter: str
    temperature: float
    width_invariant: bool  # as the engine has it
    noise: float
    prompts: int
    greedy_tokens: int
    partings: tuple[Parting, ...]
    positions: Positions
    joint: Joint | None

    @property
    def rounding(self) -> float:
        """What a logit may differ by; nothing where the engine promises the same bits at every width."""
        return 0.0 if self.width_invariant else MARGIN * self.noise

    @property
    def findings(self) -> dict[str, Finding]:
        """By part of the audit."""
        deficit = max((parting.deficit for parting in self.partings), default=0.0)
        return {
            "widths": Finding.of(self.noise, 0.0 if self.width_invariant else self.noise),
            # Two logits may move towards each other, and a tie is broken by any movement.
            "greedy": Finding.of(deficit, 2 * self.rounding)
            if deficit or not self.partings
            else Finding.ROUNDING,
            "positions": Finding.of(self.positions.logits, self.rounding),
            "samples": Finding.FAULT if self.joint and self.joint.p_value < LEVEL else Finding.EXACT,
        }

    @property
    def finding(self) -> Finding:
        """The worst of them."""
        return max(self.findings.values(), key=list(Finding).index)

    def as_object(self) -> dict[str, Any]:
        """All of it, in what JSON has."""
        findings = {part: str(finding) for part, finding in self.findings.items()}
        return {**asdict(self), "rounding": self.rounding, "findings": findings, "verdict": str(self.finding)}


def audit(
    target: LanguageModel,
    drafter: Drafter,
    prompts: Tokens[Prompt] = PROMPTS,
    *,
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 64,
    num_draft_tokens: int | None = None,
    verification: str = "auto",
    lenience: float = 1.0,
    num_samples: int | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Compare speculative with plain decoding of a target: does this drafter leave its output as it is?

    Greedy output on each of `prompts`; the distributions at each position of the drafts of one sampled output
    for each; and joint samples of a few tokens against the target's own law. `sampling`, `verification` and
    `lenience`: what is audited, as `generate` takes them; a `sampling` of None is temperature 1.
    `num_samples`: None takes as many as `seconds` allow. `progress`: None draws bars on standard error where
    that is a terminal. Raises OptionError for fewer than one prompt, token or sample or for no time, and what
    `generate` raises.
    """
    refuse_no_drafter(drafter)
    checks.of_kind("sampling", sampling, SamplingParams | None, "a SamplingParams, or None")
    sampling = sampling or SamplingParams(temperature=1.0)
    prompts = checks.listed("prompts", prompts, "a list of prompts")
    checks.whole_number("the number of prompts", len(prompts), least=1)
    for name, value in (("num_samples", num_samples), ("num_draft_tokens", num_draft_tokens)):
        if value is not None:
            checks.whole_number(name, value, least=1)
    checks.whole_number("seed", seed, least=0)
    if not 0 < checks.number("seconds", seconds) < inf:
        raise OptionError(f"seconds is {seconds}; give a positive finite number.")
    run = _Run(target, drafter, sampling, num_draft_tokens, verification, lenience, seed)
    with shown(progress) as report:
        greedy_tokens, largest, positions = 0, 0.0, Positions()
        partings: list[Parting] = []
        for number, prompt in enumerate(prompts):
            report("auditing outputs", number / len(prompts))
            plain, found, moved = run.greedy(number, prompt, max_new_tokens)
            greedy_tokens += len(plain)
            partings += [found] if found else []
            largest = max(largest, moved)
            positions |= run.positions(prompt, max_new_tokens)
        report("auditing outputs", 1.0)
        joint = None
        if sampling.temperature > 0:
            joint = run.samples(prompts, num_samples, seconds, report)
    return Audit(
        target.name,
        drafter.name,
        sampling.temperature,
        target.width_invariant,
        largest,
        len(prompts),
        greedy_tokens,
        tuple(partings),
        positions,
        joint,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What is audited."""

    target: LanguageModel
    drafter: Drafter
    sampling: SamplingParams
    num_draft_tokens: int | None
    verification: str
    lenience: float
    seed: int

    @property
    def options(self) -> dict[str, Any]:
        """Of speculative decoding, apart from sampling and length."""
        return {
            "drafter": self.drafter,
            "num_draft_tokens": self.most_drafted,
            "verification": self.verification,
            "lenience": self.lenience,
            "seed": self.seed,
        }

    @property
    def most_drafted(self) -> int:
        return self.num_draft_tokens or self.drafter.default_num_draft_tokens

    def sequence(self, prompt: Prompt, sampling: SamplingParams, max_new_tokens: int) -> Sequence:
        """At its start."""
        return Request(prompt, sampling, max_new_tokens).sequence(self.target)

    def greedy(
        self, number: int, prompt: Prompt, max_new_tokens: int
    ) -> tuple[Tokens[int], Parting | None, float]:
        """The plain output, where the speculative one parts from it, and the noise along it."""
        sampling = replace(self.sampling, temperature=0.0)
        sequence = self.sequence(prompt, sampling, max_new_tokens)
        drafted = generate(
            self.target, prompt, sampling=sampling, max_new_tokens=max_new_tokens, **self.options
        ).token_ids
        with closing(PlainReader(self.target, sequence)) as reader:
            plain = greedy_output(reader, max_new_tokens, sequence.stop.eos_token_ids)
            found = parting(reader, number, plain, drafted)
        return plain, found, noise(self.target, sequence, plain, self.most_drafted + 1)

    def positions(self, prompt: Prompt, max_new_tokens: int) -> Positions:
        """Of the drafts of one output."""
        sequence = self.sequence(prompt, self.sampling, max_new_tokens)
        overheard = Overheard(self.drafter)
        options = self.options | {"drafter": overheard}
        steps = stream(self.target, prompt, sampling=self.sampling, max_new_tokens=max_new_tokens, **options)
        with closing(steps), closing(PlainReader(self.target, sequence)) as reader:
            auditing = PositionAudit(reader, sequence.sampler)
            for step in steps:
                auditing.step(step, overheard.logits)
        return auditing.found

    def samples(
        self, prompts: Tokens[Prompt], num_samples: int | None, seconds: float, report: Progress
    ) -> Joint:
        """Of a few tokens after each prompt in turn."""
        by_prompt: list[list[Generation]] = [[] for _ in prompts]
        for number in self._numbers(num_samples, seconds, report):
            index = number % len(prompts)
            options = self.options | {"seed": self.seed + number}
            by_prompt[index].append(
                generate(
                    self.target,
                    prompts[index],
                    sampling=self.sampling,
                    max_new_tokens=SAMPLE_TOKENS,
                    **options,
                )
            )
        tables = [
            table
            for prompt, made in zip(prompts, by_prompt, strict=True)
            for table in self._tables(prompt, made)
        ]
        made = [generation for group in by_prompt for generation in group]
        steps = [step for generation in made for step in generation.steps]
        return Joint(
            len(made),
            sum(len(generation.token_ids) for generation in made),
            sum(len(step.drafted) for step in steps),
            sum(step.num_accepted for step in steps),
            len(tables),
            p_value(tables, self.seed),
        )

    def _numbers(self, num_samples: int | None, seconds: float, report: Progress) -> Iterator[int]:
        """Of the samples, from 0, as many as were asked for or as the time allows, one at least."""
        start, number, share = perf_counter(), 0, 0.0
        while share < 1:
            report("auditing samples", share)
            yield number
            number += 1
            share = number / num_samples if num_samples else (perf_counter() - start) / seconds
        report("auditing samples", 1.0)

    def _tables(self, prompt: Prompt, made: Tokens[Generation]) -> Iterator[Counts]:
        """The tokens that came after the prompt, and after the beginnings that came often."""
        sequence = self.sequence(prompt, self.sampling, SAMPLE_TOKENS)
        with closing(PlainReader(self.target, sequence)) as reader:
            for before, counts in followers(generation.token_ids for generation in made):
                yield Counts.of(counts, reader.probs(before))
