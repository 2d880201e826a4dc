"""T(n): how long one target pass over n positions takes. Prints one JSON object.

    python benchmarks/passes.py --model CONVERTED_FOLDER [--model ...] [--context 256] [--rounds 15]

Each model is measured in a process of its own, since a second session in the same process would share its
cores. The widths are interleaved; printed are the median of the rounds and their quartiles, in milliseconds.
"""

import argparse
import json
import subprocess
import sys
from contextlib import closing
from time import perf_counter

from draftwise import load
from measuring import summary

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 32)


def measure(source: str, context: int, rounds: int, threads: int | None) -> dict[str, object]:
    model = load(source, threads=threads)
    token_ids = [7919 * (position + 1) % 20000 for position in range(context + max(WIDTHS))]
    milliseconds: dict[int, list[float]] = {width: [] for width in WIDTHS}
    # A width of 1 is what a draft model runs; a target's lone token is fed in a pass of 2.
    with closing(model.open(1, len(token_ids), width_invariant=False)) as state:
        state.forward([token_ids[:context]], [1])
        for measured in range(-2, rounds):
            for width in WIDTHS:
                state.keep(0, context)
                start = perf_counter()
                state.forward([token_ids[context : context + width]], [width])
                if measured >= 0:
                    milliseconds[width].append(1e3 * (perf_counter() - start))
    return {
        "model": source,
        "precision": getattr(model, "precision", None),
        "width_invariant": model.width_invariant,
        "milliseconds": {width: summary(times) for width, times in milliseconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if len(options.model) == 1:
        print(json.dumps(measure(options.model[0], options.context, options.rounds, options.threads)))
        return
    shared = ["--context", str(options.context), "--rounds", str(options.rounds)]
    shared += ["--threads", str(options.threads)] if options.threads else []
    lines = [
        subprocess.run(
            [sys.executable, __file__, "--model", model, *shared], check=True, stdout=subprocess.PIPE
        ).stdout
        for model in options.model
    ]
    print(json.dumps([json.loads(line) for line in lines], indent=1))


if __name__ == "__main__":
    main()
