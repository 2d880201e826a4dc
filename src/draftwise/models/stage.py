"""A stage of a conversion in a process of its own, whose memory is free again when it ends.

`python -m draftwise.models.stage package.module:function '{"argument": "value"}'` calls the function with a
`progress` that prints; lines of JSON on standard output carry progress and the one error that ended it.
"""

import json
import subprocess
import sys
import tempfile
from importlib import import_module
from typing import Any

import draftwise.errors
from draftwise.errors import DraftwiseError, ModelError
from draftwise.progress import Progress


def run_stage(function: str, progress: Progress, **arguments: Any) -> None:
    """Call `function` ("package.module:name", arguments of JSON values) in a new process.

    Raises the DraftwiseError that it raised, or ModelError with the end of its error output.
    """
    command = [sys.executable, "-m", __name__, function, json.dumps(arguments)]
    error: DraftwiseError | None = None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=noise, text=True) as process:
            try:
                for line in process.stdout or ():
                    match json.loads(line):
                        case {"stage": stage, "fraction": fraction}:
                            progress(stage, fraction)
                        case {"error": name, "message": message}:
                            error = getattr(draftwise.errors, name)(message)
            except BaseException:
                process.kill()
                process.wait()
                raise
        if error is not None:
            raise error
        if process.returncode:
            noise.seek(0)
            raise ModelError(_what_ended(function, process.returncode, noise.read()))


def _what_ended(function: str, returncode: int, noise: str) -> str:
    if returncode == -9:
        return f"{function} was killed, probably for want of memory; free some or take a smaller model."
    last_line = (noise.strip().splitlines() or ["no message"])[-1]
    return f"{function} failed ({last_line}); its exit code was {returncode}."


def _main(function: str, arguments: str) -> int:
    messages, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no message of ours

    def send(**message: Any) -> None:
        print(json.dumps(message), file=messages, flush=True)

    module, name = function.split(":")
    try:
        getattr(import_module(module), name)(
            **json.loads(arguments), progress=lambda stage, fraction: send(stage=stage, fraction=fraction)
        )
    except DraftwiseError as error:
        send(error=type(error).__name__, message=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
