"""The measured costs of a target and its drafters here: saved, reused, measured anew when stale."""

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any
from zlib import crc32

from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.models.base import LanguageModel, example_of
from draftwise.models.cache import cache_folder
from draftwise.models.machine import processor
from draftwise.planning.curves import Curves, DraftTimes, Timing, at_context
from draftwise.planning.timing import WIDER, Clock, draft_times, pass_times
from draftwise.progress import Progress, shown

_log = logging.getLogger("draftwise")
RECIPE = 5  # raised whenever what is timed changes
BUDGET = 4.0  # seconds spent on rounds, of the target and of each drafter; slow models take longer


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the costs of a model depend on: measured under other conditions, they say nothing."""

    model: str
    runs_on: str  # library and version, precision, threads
    machine: str
    content: str  # a digest of what the model computes

    @classmethod
    def of(cls, model: LanguageModel) -> "Conditions":
        """The conditions of a model here and now; takes one short pass."""
        runs_on = getattr(model, "runs_on", type(model).__name__)  # models of a few numbers have no engine
        return cls(model.name, runs_on, f"{processor()}, {os.cpu_count()} cores", _content(model))


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds of a target's passes and of its drafters' guesses, by context length.

    `verify`: by width, the positions of the pass. `drafters`: for each drafter, by its `drafter_key`.
    `wider`: `verify` at widths that only several rows have together; empty until those are asked for.
    """

    conditions: Conditions
    verify: Curves
    drafters: Mapping[str, DraftTimes] = field(default_factory=dict)
    wider: Curves = field(default_factory=dict)

    def verify_seconds(self, context_length: int) -> dict[int, float]:
        """T(n): seconds of a pass at the measured widths n; width 1 is a lone token, as the target runs it.

        Between measured context lengths and beyond them the cost is taken to be linear, as attention is.
        """
        return at_context(self.verify, context_length)

    def shared_seconds(self, context_length: int) -> dict[int, float]:
        """T(n) for the positions n of several rows together, which are taken to cost what one row's do."""
        return self.verify_seconds(context_length) | at_context(self.wider, context_length)

    def draft_seconds(self, drafter: str, context_length: int) -> dict[int, float]:
        """Seconds that a drafter takes to guess n tokens, at the measured n; `drafter`: its `drafter_key`."""
        return at_context(self.drafters[drafter].draft, context_length)

    @property
    def spread(self) -> float:
        """The median, over all that was timed, of the distance of the quartiles over the median."""
        spreads = [
            timing.spread
            for curves in (self.verify, *(times.draft for times in self.drafters.values()))
            for points in curves.values()
            for timing in points.values()
        ]
        return sorted(spreads)[len(spreads) // 2]

    def write(self, file: Path) -> None:
        """Raises OSError where that cannot be written."""
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        partial.replace(file)

    @classmethod
    def read(cls, file: Path) -> "Profile":
        """Raises OSError or ValueError where the file holds no readable profile."""
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            drafters = {
                name: DraftTimes(_read_curves(times["draft"]), times["read"])
                for name, times in fields["drafters"].items()
            }
            wider = _read_curves(fields.get("wider", {}))
            return cls(Conditions(**fields["conditions"]), _read_curves(fields["verify"]), drafters, wider)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{file} is a profile of another version ({error}).") from None


def profile_for(
    target: LanguageModel,
    drafters: Sequence[Drafter] = (),
    *,
    wider: bool = False,
    budget: float = BUDGET,
    file: Path | None = None,
    remeasure: bool = False,
    progress: Progress | None = None,
    clock: Clock = perf_counter,
) -> Profile:
    """The profile of a target and its drafters here: the saved one, with what it lacks measured and saved.

    A profile of another machine, engine, thread count or model content is measured anew. `wider`: with the
    widths that several rows have together. `budget`: seconds to spend on each of target, drafters and those.
    `file`: None is one in the cache folder for each model, engine and machine. `remeasure`: take nothing from
    it, for a machine that has become faster or busier. `progress`: None draws bars on standard error where
    that is a terminal.
    """
    conditions = Conditions.of(target)
    file = file or profile_file(conditions)
    profile = None if remeasure else _saved(file, conditions)
    missing = [drafter for drafter in drafters if not profile or drafter_key(drafter) not in profile.drafters]
    if profile and not missing and (profile.wider or not wider):
        return profile
    with shown(progress) as report:
        if profile is None:
            verify = pass_times(target, budget=budget, clock=clock, progress=report)
            profile = Profile(conditions, verify)
        if wider and not profile.wider:
            widened = pass_times(target, WIDER, budget=budget, clock=clock, progress=report)
            profile = replace(profile, wider=widened)
        timed = {
            drafter_key(drafter): draft_times(
                drafter, target, profile.verify, budget=budget, clock=clock, progress=report
            )
            for drafter in missing
        }
    profile = replace(profile, drafters={**profile.drafters, **timed})
    try:
        profile.write(file)
    except OSError as error:
        _log.warning(
            "%s cannot be written (%s): what %s takes is measured in every process; set DRAFTWISE_CACHE to "
            "a folder that can be.",
            *(file, error.strerror, target.name),
        )
    return profile


def profile_file(conditions: Conditions) -> Path:
    """Where the profile of such a model is kept; the content is looked at when it is read."""
    readable = re.sub(r"[^\w.-]+", "-", Path(conditions.model).name)
    digest = crc32(f"{RECIPE}|{conditions.model}|{conditions.runs_on}|{conditions.machine}".encode())
    return cache_folder() / "profiles" / f"{readable}-{digest:08x}.json"


def drafter_key(drafter: Drafter) -> str:
    """A name that drafters of another cost do not share."""
    if isinstance(drafter, DraftModel):
        conditions = Conditions.of(drafter.model)
        return f"{drafter.name}, {conditions.runs_on}, {conditions.content}"
    return drafter.name


def _saved(file: Path, conditions: Conditions) -> Profile | None:
    try:
        profile = Profile.read(file)
    except (OSError, ValueError):
        return None
    return profile if profile.conditions == conditions else None


def _content(model: LanguageModel) -> str:
    """A digest of the logits of a fixed text: other weights, another precision or kernel give other bits."""
    length = min(8, model.max_length)
    token_ids = [7919 * (position + 1) % model.vocab_size for position in range(length)]
    with closing(model.open(1, length)) as state:
        state.begin(0, example_of(model))
        logits = state.forward([token_ids], [length])[0]
    return f"{crc32(logits.tobytes()):08x}"


def _read_curves(fields: Mapping[str, Any]) -> Curves:
    return {
        int(context): {int(size): Timing(**timing) for size, timing in points.items()}
        for context, points in fields.items()
    }
