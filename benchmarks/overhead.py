"""What the loop costs: wall time of a generation over the raw engine calls at the same widths.

    python benchmarks/overhead.py [--target MODEL] [--data DIR] [--rounds 5]

A generation is recorded (how many tokens were held and fed at each pass), then the same passes are run again
and only the session's own `run` is timed; both interleaved. Prints one JSON object with a `ratio` for each
setting and, with --memory, the growth of peak memory over a long generation.
"""

import argparse
import json
import resource
from contextlib import closing
from pathlib import Path
from time import perf_counter

from draftwise import SamplingParams, generate, load
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.onnx.engine import OnnxModel
from draftwise.types import Generation
from measuring import Messages, family_prompts, summary

SETTINGS = {
    "temperature 0": SamplingParams(),
    "temperature 1, top-p 0.95": SamplingParams(temperature=1.0, top_p=0.95),
}


def bare_seconds(model: OnnxModel, generation: Generation, prompt_ids: list[int]) -> float:
    """The seconds of the session's own `run` over the passes of a generation, in the same order."""
    token_ids = [*prompt_ids, *generation.token_ids, *([0] * 64)]
    seconds = 0.0
    run = model.session.run_with_iobinding

    def timed(binding: object) -> None:
        nonlocal seconds
        start = perf_counter()
        run(binding)
        seconds += perf_counter() - start

    model.session.run_with_iobinding = timed
    try:
        held = 0
        with closing(model.open(1, len(token_ids))) as state:
            for step in generation.steps:
                state.keep(0, held)
                state.forward([token_ids[held : held + step.num_fed]], [len(step.drafted) + 1])
                held += step.num_fed - len(step.drafted) + step.num_accepted
    finally:
        del model.session.run_with_iobinding
    return seconds


def ratio(
    model: OnnxModel, prompts: list[Messages], sampling: SamplingParams, rounds: int
) -> dict[str, float]:
    ratios = []
    for index in range(-1, rounds):
        wall = bare = 0.0
        for prompt in prompts:
            start = perf_counter()
            generation = generate(
                model,
                prompt,
                drafter=PromptLookup(),
                sampling=sampling,
                max_new_tokens=96,
                seed=0,
                ignore_eos=True,
            )
            wall += perf_counter() - start
            assert model.tokenizer
            bare += bare_seconds(model, generation, model.tokenizer.encode_chat(prompt))
        if index >= 0:
            ratios.append(wall / bare)
    return summary(ratios)


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
        name: {"ratio": ratio(model, prompts, sampling, options.rounds)}
        for name, sampling in SETTINGS.items()
    }
    if options.memory:
        result["memory growth (MiB)"] = memory_growth(model, prompts[0])
    print(json.dumps({"target": model.name, "precision": model.precision, **result}, indent=1))


if __name__ == "__main__":
    main()
