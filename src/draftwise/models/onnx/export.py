"""The float32 decoder graph of a transformers folder, made by onnxruntime-genai's builder."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

from draftwise.errors import ModelError, UnsupportedError
from draftwise.progress import Progress

CACHE_INPUTS = "past_key_values"
_KNOWN_INPUTS = {"input_ids", "attention_mask"}


def export(source_folder: Path, out: Path, progress: Progress) -> dict[str, Any]:
    """Write `out/model.onnx` in float32 and return the builder's description of the decoder.

    The builder runs in its own process, so that what it held is free again. Sliding-window layers keep
    full-length buffers: a bounded one would overwrite what a rejected draft must leave in place.
    Raises UnsupportedError for an architecture that the builder or the engine does not know.
    """
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(source_folder)]
    command += ["-o", str(out), "-c", str(out / "cache"), "-p", "fp32", "-e", "cpu"]
    command += ["--extra_options", "windowed_kv_cache=false"]
    stage = "exporting to ONNX"
    progress(stage, 0.0)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=noise, text=True) as process:
            layers = 0
            for line in process.stdout or ():
                layers += line.startswith("Reading layer")
                progress(stage, layers / (layers + 10))  # how many there will be, it does not say
        if process.returncode:
            noise.seek(0)
            last_line = (noise.read().strip().splitlines() or ["no message"])[-1]
            if last_line.startswith("NotImplementedError"):
                raise UnsupportedError(f"{source_folder.name} cannot be exported to ONNX: {last_line}")
            raise ModelError(f"exporting {source_folder.name} to ONNX failed: {last_line}")
    progress(stage, 1.0)
    _refuse_other_caches(out / "model.onnx", source_folder.name)
    decoder: dict[str, Any] = json.loads((out / "genai_config.json").read_text())["model"]
    return decoder


def _refuse_other_caches(graph: Path, name: str) -> None:
    model = onnx.load(graph, load_external_data=False)
    inputs = {value.name for value in model.graph.input}
    odd = sorted(i for i in inputs - _KNOWN_INPUTS if not i.startswith(CACHE_INPUTS))
    if odd:
        raise UnsupportedError(
            f"the exported {name} needs the input {odd[0]}, which the onnx engine does not give."
        )
    if not any(node.op_type == "GroupQueryAttention" for node in model.graph.node):
        raise UnsupportedError(
            f"the exported {name} has no GroupQueryAttention, so its cache cannot be shared."
        )
