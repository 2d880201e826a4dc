"""What a benchmark writes down: one line of JSON for each generation, with every step of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from draftwise.journal import Journal, digest
from draftwise.types import Draft, Generation, Step

PLAIN = "none"


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to decode. `num_draft_tokens`: as `stream` takes it; None is the drafter's own."""

    target: str
    drafter: str
    num_draft_tokens: int | Literal["auto"] | None
    temperature: float

    @property
    def is_plain(self) -> bool:
        return self.drafter == PLAIN

    @property
    def label(self) -> str:
        if self.is_plain:
            return "plain"
        if self.num_draft_tokens is None:
            return self.drafter
        return f"{self.drafter}, {'γ = ' if self.gamma else ''}{self.num_draft_tokens}"

    @property
    def gamma(self) -> int | None:
        """The constant number of draft tokens; None where there is none."""
        return self.num_draft_tokens if isinstance(self.num_draft_tokens, int) else None


@dataclass(frozen=True, slots=True)
class Pass:
    """One step: positions fed, tokens drafted, verified, accepted, emitted, and seconds by what they went to.

    `depth`: of a tree the most tokens that could be accepted, of a chain all that were drafted. `verified`:
    positions at which guesses were looked at, as `Step.num_verified`.
    """

    fed: int
    drafted: int
    depth: int
    verified: int
    accepted: int
    emitted: int
    draft: float
    verify: float
    other: float

    @classmethod
    def of(cls, step: Step) -> Self:
        seconds = step.seconds
        return cls(
            step.num_fed,
            len(step.drafted),
            Draft(step.drafted, None, step.parents).depth,
            step.num_verified,
            step.num_accepted,
            len(step.emitted),
            *(round(part, 7) for part in (seconds.draft, seconds.verify, seconds.other)),
        )

    @property
    def seconds(self) -> float:
        return self.draft + self.verify + self.other


@dataclass(frozen=True, slots=True)
class Run:
    """One generation: of which prompt of which family, in which round, and its steps.

    `output`: a digest of the token ids.
    """

    setting: Setting
    family: str
    prompt: int
    round: int
    output: str
    passes: tuple[Pass, ...]

    @classmethod
    def of(cls, setting: Setting, family: str, prompt: int, round: int, generation: Generation) -> Self:
        passes = tuple(map(Pass.of, generation.steps))
        return cls(setting, family, prompt, round, digest(generation.token_ids), passes)

    @property
    def group(self) -> "Group":
        return Group(self.setting.target, self.setting.temperature, self.prompt, self.round)

    @property
    def decoding(self) -> Sequence[Pass]:
        """The passes after the one that read the prompt."""
        return self.passes[1:]

    def as_object(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields.pop("setting"), **fields}

    @classmethod
    def from_object(cls, fields: Mapping[str, Any]) -> Self:
        setting = Setting(**{name: fields[name] for name in Setting.__dataclass_fields__})
        passes = tuple(Pass(**each) for each in fields["passes"])
        return cls(setting, fields["family"], fields["prompt"], fields["round"], fields["output"], passes)


@dataclass(frozen=True, slots=True)
class Group:
    """What is run in turns, one run right after the other: all settings, on one prompt in one round."""

    target: str
    temperature: float
    prompt: int
    round: int


class Log:
    """The file of a benchmark, to which groups are added as they finish, so that it can be taken up again."""

    def __init__(self, file: Path, conditions: Mapping[str, Any], group_size: int) -> None:
        """Take up a file that an earlier call left, or begin one.

        `conditions`: JSON values under which it was measured, the first line of the file. A group that was
        cut off before its `group_size` runs were written is dropped, to be run anew. Raises OptionError where
        the file has other conditions or cannot be read or written.
        """
        self._journal = Journal(file, conditions)
        found = [Run.from_object(fields) for fields in self._journal.read()]
        counts = Counter(run.group for run in found)
        self.runs = [run for run in found if counts[run.group] == group_size]
        self._journal.rewrite(run.as_object() for run in self.runs)

    @property
    def groups(self) -> set[Group]:
        """The groups that are finished."""
        return {run.group for run in self.runs}

    def add(self, runs: Iterable[Run]) -> None:
        """Write the runs of one group."""
        added = list(runs)
        self._journal.add(run.as_object() for run in added)
        self.runs += added
