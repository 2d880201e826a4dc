"""Model folders small enough to be made inside a test."""

import io
import json
from pathlib import Path
from typing import Any

import gguf
import sentencepiece
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from tests.models.tiny import llama
from tests.models.tiny_seq2seq import ENCODER_DECODERS

MAX_LENGTH = 256

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "Speculative decoding drafts a few tokens, and the target verifies them in one pass.",
    "def add(left, right):\n    return left + right\n",
    "naïve café, 12345 and 67890; it isn't over, is it?",
]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level(corpus: list[str] = CORPUS) -> tokenizers.Tokenizer:
    """GPT-2's family: byte-level BPE."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def save_tokenizer(backend: tokenizers.Tokenizer, folder: Path, chat_template: str | None = None) -> Path:
    """Save it as transformers does."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="<|im_end|>"
    )
    fast.chat_template = chat_template
    fast.save_pretrained(folder)
    return folder


def tiny_llama(seed: int = 1) -> PreTrainedModel:
    """A small Llama with random weights for the tokenizer above; it repeats itself and writes ASCII."""
    model = llama(
        seed=seed,
        vocab_size=320,
        hidden_size=64,
        head_dim=16,  # the onnx engine takes multiples of 16
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.1,
        bos_token_id=SPECIAL.index("<s>"),
        eos_token_id=SPECIAL.index("<|im_end|>"),
    )
    tokenizer = byte_level()
    texts = [tokenizer.decode([token_id], skip_special_tokens=True) for token_id in range(320)]
    with torch.no_grad():  # a logit of zero is seldom the largest of them all
        model.lm_head.weight[[not text.isascii() or not text.isprintable() or not text for text in texts]] = 0
    return model


def save_llama(folder: Path, seed: int = 1, chat_template: str | None = CHATML) -> Path:
    """A transformers folder with a tiny Llama and its tokenizer."""
    tiny_llama(seed).save_pretrained(folder)
    return save_tokenizer(byte_level(), folder, chat_template)


def save_encoder_decoder(folder: Path, architecture: str = "t5-gated", seed: int = 1) -> Path:
    """A transformers folder with a tiny encoder-decoder and its tokenizer."""
    ENCODER_DECODERS[architecture](
        seed=seed, vocab_size=320, eos_token_id=SPECIAL.index("<|im_end|>")
    ).save_pretrained(folder)
    return save_tokenizer(byte_level(), folder)


GERMAN = [
    "Der schnelle braune Fuchs springt über den faulen Hund, größer als Straßen.",
    "Spekulatives Dekodieren entwirft ein paar Token, und das Ziel prüft sie in einem Durchgang.",
]


def sentencepiece_model(corpus: list[str], size: int, **options: Any) -> bytes:
    """The content of a file as SentencePiece saves it."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=file,
        vocab_size=size,
        character_coverage=1.0,
        minloglevel=2,
        **options,
    )
    return file.getvalue()


def save_marian(folder: Path, seed: int = 3) -> Path:
    """A folder as Helsinki-NLP's are: no tokenizer.json, and pieces of each language in one vocab.json."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"</s>": 0, "<unk>": 1, ">>de<<": 2}
    for name, corpus in (("source", CORPUS), ("target", GERMAN)):
        file = folder / f"{name}.spm"
        file.write_bytes(sentencepiece_model(corpus, 80, hard_vocab_limit=False))
        model = sentencepiece.SentencePieceProcessor(model_file=str(file))
        for piece in map(model.id_to_piece, reversed(range(3, model.get_piece_size()))):
            vocabulary.setdefault(piece, len(vocabulary))
    for piece in ("q", "▁the"):  # which Marian never saw, though they are pieces
        vocabulary[f"{piece}, not seen"] = vocabulary.pop(piece)
    vocabulary["<pad>"] = pad = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "de"}')
    model = ENCODER_DECODERS["marian"](
        seed=seed,
        vocab_size=len(vocabulary),
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
    )
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(folder)
    return folder


def save_gguf(folder: Path, file: Path) -> Path:
    """What save_llama wrote as one GGUF file of float32 weights."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    backend = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = sorted(backend["model"]["vocab"], key=backend["model"]["vocab"].get)
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.CONTROL if token in SPECIAL else kinds.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in backend["model"]["merges"]])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_chat_template(CHATML)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weights in model.state_dict().items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(
            name.split(".")[-2]
        )
        if heads:  # GGUF rotates neighbouring pairs, transformers halves
            weights = weights.view(heads, 2, -1, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)
        writer.add_tensor(names.get_name(name, [".weight"]), weights.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
