"""Tokenizers in other files than tokenizer.json: transformers reads them, and they are saved as that."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, processors

from draftwise.errors import DraftwiseError, ModelError, UnsupportedError
from draftwise.progress import Progress
from draftwise.tokenizer import PIECES, SOURCE_PIECES

# What SentencePiece saves, and the merges and words of older BPE and WordPiece vocabularies.
SENTENCEPIECE = ("*.spm", "*.model")
_OTHERS = ("merges.txt", "vocab.txt")


def needs_conversion(folder: Path) -> bool:
    """Whether a folder has the files of a tokenizer, and not tokenizer.json."""
    return not (folder / "tokenizer.json").is_file() and any(
        any(folder.glob(pattern)) for pattern in (*SENTENCEPIECE, *_OTHERS)
    )


def save_tokenizer(folder: str, out: str, *, progress: Progress) -> None:
    """Write the tokenizer of a transformers folder to the folder `out`, as `Tokenizer.from_folder` reads it.

    Raises ModelError where its files cannot be read, UnsupportedError for one that the library tokenizers
    cannot express.
    """
    from transformers import AutoTokenizer, MarianTokenizer

    progress("reading the tokenizer", 0.0)
    with _reading(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if isinstance(tokenizer, MarianTokenizer):
            _save_marian(tokenizer, Path(out))
        elif not tokenizer.is_fast:
            raise UnsupportedError(
                f"{folder} has a {type(tokenizer).__name__}, which transformers cannot turn into a "
                "tokenizer.json; give a folder that holds one, or run the model on token ids."
            )
        tokenizer.save_pretrained(out)
    progress("reading the tokenizer", 1.0)


def _save_marian(tokenizer: Any, out: Path) -> None:
    """One vocabulary of ids, and the pieces into which texts of each of the two languages are cut."""
    name = tokenizer.name_or_path
    if tokenizer.separate_vocabs:
        raise UnsupportedError(
            f"{name} has a vocabulary for each language; give a Marian model whose languages share one."
        )
    source, target = (_pieces(model, name) for model in (tokenizer.spm_source, tokenizer.spm_target))
    words = models.WordLevel(tokenizer.encoder, unk_token=tokenizer.unk_token)
    vocabulary = tokenizers.Tokenizer(words)
    vocabulary.decoder = target.decoder
    end = tokenizer.eos_token
    vocabulary.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, tokenizer.eos_token_id)]
    )
    special = [tokenizers.AddedToken(token, normalized=False) for token in tokenizer.all_special_tokens]
    languages = [tokenizers.AddedToken(code, normalized=False) for code in tokenizer.supported_language_codes]
    for file, backend in (("tokenizer.json", vocabulary), (PIECES, target), (SOURCE_PIECES, source)):
        backend.add_special_tokens(special)
        backend.add_tokens(languages)
        backend.save(str(out / file))


def _pieces(model: Any, name: str) -> tokenizers.Tokenizer:
    """A SentencePieceProcessor as a Tokenizer of the same pieces; their ids are others."""
    from transformers.convert_slow_tokenizer import SpmConverter, import_protobuf

    proto = import_protobuf().ModelProto.FromString(model.serialized_model_proto())
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise UnsupportedError(
            f"{name} has a SentencePiece model that is no unigram model; give another Marian model."
        )
    # No text is cut into the pieces that stand for what is no text, such as "<s>".
    pieces = [piece for piece in proto.pieces if piece.type not in (piece.CONTROL, piece.UNUSED)]
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    proto.trainer_spec.unk_id = [piece.type for piece in pieces].index(proto.SentencePiece.UNKNOWN)
    scores = [(piece.piece, piece.score) for piece in pieces]
    backend: tokenizers.Tokenizer = SpmConverter.build_tokenizer_from_spm_proto(proto, scores)
    return backend


@contextmanager
def _reading(folder: str) -> Iterator[None]:
    """What libraries raise over broken files becomes a ModelError."""
    try:
        yield
    except DraftwiseError:
        raise
    except Exception as error:  # sentencepiece's, protobuf's, transformers' own: broken files break anywhere
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        raise ModelError(
            f"the tokenizer files of {folder} cannot be read ({reason}); fetch them again, or give a folder "
            "with a tokenizer.json."
        ) from None
