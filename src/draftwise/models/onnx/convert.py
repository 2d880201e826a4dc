"""`convert`: a transformers folder becomes a decoder for the ONNX engine, and what that lost is measured."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from draftwise.errors import OptionError
from draftwise.models.onnx.export import export
from draftwise.models.onnx.graph import rewrite
from draftwise.models.onnx.kernels import best_layout
from draftwise.models.onnx.manifest import Layout, Manifest
from draftwise.models.onnx.quality import surprises
from draftwise.progress import Progress
from draftwise.tokenizer import Tokenizer

PRECISIONS = {
    "int8": None,
    "int8-blockwise": Layout.BLOCKWISE,
    "int8-rowwise": Layout.ROWWISE,
    "int4": Layout.INT4,
    "fp32": Layout.FLOAT32,
}


def convert(
    source_folder: Path,
    out: Path,
    *,
    precision: str,
    progress: Progress,
    name: str | None = None,
    hidden_states: Sequence[int] = (),
    vocabulary: Sequence[int] = (),
    tokenizer_folder: Path | None = None,
) -> Manifest:
    """Fill the folder `out` from the transformers folder `source_folder`.

    `tokenizer_folder`: where its tokenizer.json is, if not there.
    `precision`: one of PRECISIONS, where "int8" is the 8-bit layout that suits this processor. The float
    weights stay on disk and are read one matrix at a time. `hidden_states`: what drafters will read, by the
    numbers of `models.base.Tap`. `vocabulary`: the tokens that a draft model may guess, in order; none means
    all, and what is lost is measured where one of them follows. Raises OptionError for another precision, a
    layer that is not there and tokens that no text has, UnsupportedError for an architecture that cannot be
    exported.
    """
    if precision not in PRECISIONS:
        raise OptionError(f'precision "{precision}" is not one of {", ".join(PRECISIONS)}.')
    tokenizer = Tokenizer.from_folder(tokenizer_folder or source_folder, name)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out, prefix="float-") as work:
        decoder = export(source_folder, Path(work), progress)
        vocabulary = [token_id for token_id in vocabulary if token_id < decoder["vocab_size"]]
        layout = PRECISIONS[precision] or best_layout()
        rewrite(
            Path(work) / "model.onnx",
            out / "model.onnx",
            layout,
            progress,
            hidden_states=hidden_states,
            num_layers=decoder["decoder"]["num_hidden_layers"],
            vocabulary=vocabulary,
        )
        head_size, max_length = decoder["decoder"]["head_size"], decoder["context_length"]
        fixed = tokenizer, head_size, max_length
        progress("measuring what was lost", 0.0)
        before = surprises(Path(work) / "model.onnx", *fixed, repack=False)
    progress("measuring what was lost", 0.5)
    after = surprises(out / "model.onnx", *fixed, repack=True)
    progress("measuring what was lost", 1.0)
    known = np.isfinite(after)
    if not known.any():
        raise OptionError(f"none of the {len(vocabulary)} tokens of the vocabulary is common; give more.")
    for folder in (source_folder, tokenizer_folder or source_folder):
        for file in folder.iterdir():
            if file.suffix in {".json", ".jinja"} and not file.name.endswith(".index.json"):
                shutil.copy(file, out / file.name)
    manifest = Manifest(
        name=name or source_folder.name,
        layout=layout,
        vocab_size=decoder["vocab_size"],
        max_length=max_length,
        head_size=head_size,
        float_nll=float(before[known].mean()),
        nll=float(after[known].mean()),
        only_drafts=bool(vocabulary),
    )
    manifest.write(out)
    return manifest
