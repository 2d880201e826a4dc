"""What the loop costs: wall time of a generation over the raw engine calls at the same widths.

    python benchmarks/overhead.py [--target MODEL] [--data DIR] [--rounds 5]

`ratio` is wall time over the seconds inside the session's `run`, both of one generation. The `ratio to the
passes run again` compares with the same passes (tokens held, tokens fed) run once more without the loop,
interleaved; it is the noisier one. Prints one JSON object; with --memory also the growth of peak memory.
"""

import argparse
import json
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter

from draftwise import SamplingParams, generate, load
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.onnx.engine import OnnxModel
from draftwise.prompt import encode_prompt
from draftwise.types import Generation
from measuring import Messages, family_prompts, summary

SETTINGS = {
    "temperature 0": SamplingParams(),
    "temperature 1, top-p 0.95": SamplingParams(temperature=1.0, top_p=0.95),
}


@contextmanager
def timed_runs(model: OnnxModel) -> Iterator[list[float]]:
    """Collects the seconds of every `run` of the session."""
    seconds: list[float] = []
    run = model.session.run_with_iobinding

    def timed(binding: object) -> None:
        start = perf_counter()
        run(binding)
        seconds.append(perf_counter() - start)

    model.session.run_with_iobinding = timed
    try:
        yield seconds
    finally:
        del model.session.run_with_iobinding


def run_again(model: OnnxModel, generation: Generation, prompt_ids: list[int]) -> None:
    """The passes of a generation in the same order, and nothing else."""
    token_ids = [*prompt_ids, *generation.token_ids, *([0] * 64)]
    held = 0
    with closing(model.open(1, len(token_ids))) as state:
        for step in generation.steps:
            state.keep(0, held)
            state.forward([token_ids[held : held + step.num_fed]], [len(step.drafted) + 1])
            held += step.num_fed - len(step.drafted) + step.num_accepted


def measure(
    model: OnnxModel, prompts: list[Messages], sampling: SamplingParams, rounds: int
) -> dict[str, dict[str, float]]:
    ratios, again = [], []
    for index in range(-1, rounds):
        wall = inside = bare = 0.0
        for prompt in prompts:
            prompt_ids = encode_prompt(model, prompt)
            with timed_runs(model) as seconds:
                start = perf_counter()
                generation = generate(
                    model,
                    prompt_ids,
                    drafter=PromptLookup(),
                    sampling=sampling,
                    max_new_tokens=96,
                    seed=0,
                    ignore_eos=True,
                )
                wall += perf_counter() - start
            inside += sum(seconds)
            with timed_runs(model) as seconds:
                run_again(model, generation, prompt_ids)
            bare += sum(seconds)
        if index >= 0:
            ratios.append(wall / inside)
            again.append(wall / bare)
    return {"ratio": summary(ratios), "ratio to the passes run again": summary(again)}


def memory_growth(model: OnnxModel, prompt: Messages) -> float:
    """Peak resident mebibytes after 1,500 more steps, less the peak after the first 100."""

    def peak(num_tokens: int) -> float:
        generate(model, prompt, max_new_tokens=num_tokens, num_draft_tokens=0, ignore_eos=True)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    peak(1600)  # the buffers of that length
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return round(peak(1600) - before, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="also measure the growth of peak memory")
    options = parser.parse_args()
    model = load(options.target, engine="onnx")
    assert isinstance(model, OnnxModel)
    prompts = family_prompts(options.data, "summarization", options.prompts)
    result: dict[str, object] = {
        name: measure(model, prompts, sampling, options.rounds) for name, sampling in SETTINGS.items()
    }
    if options.memory:
        result["memory growth (MiB)"] = memory_growth(model, prompts[0])
    print(json.dumps({"target": model.name, "precision": model.precision, **result}, indent=1))


if __name__ == "__main__":
    main()
