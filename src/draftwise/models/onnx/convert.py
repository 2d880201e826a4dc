"""`convert`: a transformers folder becomes a decoder for the ONNX engine, and what that lost is measured."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from draftwise.models.onnx.export import export
from draftwise.models.onnx.graph import rewrite
from draftwise.models.onnx.kernels import best_layout
from draftwise.models.onnx.manifest import Layout, Manifest
from draftwise.models.onnx.quality import mean_negative_log_likelihood
from draftwise.progress import Progress
from draftwise.tokenizer import Tokenizer


def convert(
    source_folder: Path, out: Path, *, precision: str, progress: Progress, name: str | None = None
) -> Manifest:
    """Fill the folder `out` from the transformers folder `source_folder`.

    `precision`: "int8" (the better 8-bit layout for this processor) or "fp32". The float weights stay on disk
    and are read one matrix at a time. Raises UnsupportedError for an architecture that cannot be exported.
    """
    tokenizer = Tokenizer.from_folder(source_folder, name)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out, prefix="float-") as work:
        decoder = export(source_folder, Path(work), progress)
        layout = best_layout() if precision == "int8" else Layout.FLOAT32
        rewrite(Path(work) / "model.onnx", out / "model.onnx", layout, progress)
        head_size = decoder["decoder"]["head_size"]
        progress("measuring what was lost", 0.0)
        before = mean_negative_log_likelihood(Path(work) / "model.onnx", tokenizer, head_size)
    progress("measuring what was lost", 0.5)
    after = mean_negative_log_likelihood(out / "model.onnx", tokenizer, head_size)
    progress("measuring what was lost", 1.0)
    for file in source_folder.iterdir():
        if file.suffix in {".json", ".jinja"} and not file.name.endswith(".index.json"):
            shutil.copy(file, out / file.name)
    manifest = Manifest(
        name=name or source_folder.name,
        layout=layout,
        vocab_size=decoder["vocab_size"],
        max_length=decoder["context_length"],
        head_size=head_size,
        float_nll=before,
        nll=after,
    )
    manifest.write(out)
    return manifest
