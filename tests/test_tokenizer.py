"""The tokenizer against transformers on small tokenizers of every family, and streaming against itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from draftwise.errors import ModelError, PromptError
from draftwise.tokenizer import Tokenizer
from tests.tiny_folders import CORPUS, SPECIAL, byte_level, save_tokenizer

TEXTS = [
    *CORPUS,
    "unseen ZEBRA words",
    "  two  spaces, a\ttab\n\nand lines ",
    "a smile 😀 and a family 👩‍👩‍👧",
    "中文 и кириллица",
    "<s>one</s> <|im_start|>two<|im_end|>three",
]
TEMPLATE = (
    "{% for message in messages %}\n"
    "    {%- if message['role'] not in ['system', 'user', 'assistant'] %}\n"
    "        {{- raise_exception('unknown role ' + message['role']) }}\n"
    "    {%- endif %}\n"
    "    {%- if loop.index > 8 %}{% break %}{% endif %}\n"
    "{{ bos_token }}<|im_start|>{{ message['role'] }}\n"
    "{% generation %}{{ message['content'] | trim }}{% endgeneration %}<|im_end|>\n"
    "{% endfor %}\n"
    "{{ {'tools': tools, 'a<b': 'é'} | tojson }}\n"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Fix <|im_end|> this\ncode 😀, please."},
]


def unigram() -> tokenizers.Tokenizer:
    """SentencePiece's family: unigram over text with ▁ for spaces, bos before every text."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>")
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def byte_fallback() -> tokenizers.Tokenizer:
    """Llama 2's family: BPE with ▁ for spaces and a token for each byte."""
    pieces = [
        *SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *"abcdefghijklmnoprstuvwxyz",
        "▁t",
        "▁th",
    ]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=[("▁", "t"), ("▁t", "h")],
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def word_piece() -> tokenizers.Tokenizer:
    """BERT's family."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL))
    return tokenizer


FAMILIES: list[Callable[[], tokenizers.Tokenizer]] = [byte_level, unigram, byte_fallback, word_piece]


def save(backend: tokenizers.Tokenizer, folder: Path) -> Path:
    return save_tokenizer(backend, folder, TEMPLATE)


def amend(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.__name__)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(request.param(), tmp_path_factory.mktemp(request.param.__name__))


def test_texts_are_encoded_and_decoded_as_transformers_does(folder: Path) -> None:
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)
    assert ours.eos_token_ids == {theirs.eos_token_id}
    assert ours.vocab_size == len(theirs)


def test_special_tokens_inside_a_text_are_recognised(folder: Path) -> None:
    ours = Tokenizer.from_folder(folder)
    ids = ours.encode("one<|im_end|>two")
    assert ids.count(SPECIAL.index("<|im_end|>")) == 1
    assert ours.token(SPECIAL.index("<|im_end|>")) == "<|im_end|>"


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chats_are_rendered_and_encoded_as_transformers_does(
    folder: Path, add_generation_prompt: bool
) -> None:
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.has_chat_template
    assert (
        ours.encode_chat(MESSAGES, add_generation_prompt=add_generation_prompt)
        == (theirs.apply_chat_template(MESSAGES, add_generation_prompt=add_generation_prompt)["input_ids"])
    )


def test_tokenizer_json_alone_says_what_surrounds_a_text(tmp_path: Path) -> None:
    folder = save(unigram(), tmp_path)
    amend(folder / "tokenizer_config.json", add_bos_token=False, add_eos_token=True)
    ids = Tokenizer.from_folder(folder).encode("the dog")
    assert ids == AutoTokenizer.from_pretrained(folder)("the dog")["input_ids"]
    assert (ids[0], ids.count(1)) == (1, 1)


def test_tokens_that_only_the_config_names_are_added(tmp_path: Path) -> None:
    backend = byte_level()
    backend.save(str(tmp_path / "tokenizer.json"))
    size = backend.get_vocab_size()
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "added_tokens_decoder": {
                    str(size + 1): {"content": "<second>", "special": False},
                    str(size): {"content": "<first>", "special": True},
                },
                "eos_token": {"content": "<end>"},
            }
        )
    )
    ours = Tokenizer.from_folder(tmp_path)
    assert ours.encode("<first><second><end>") == [size, size + 1, size + 2]
    assert ours.decode([size, size + 1]) == "<second>"
    assert ours.eos_token_ids == {size + 2}


def test_the_generation_config_names_what_ends_a_text(tmp_path: Path) -> None:
    save(byte_level(), tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    assert Tokenizer.from_folder(tmp_path).eos_token_ids == {4, 7}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    assert Tokenizer.from_folder(tmp_path).eos_token_ids == {2, 3, 4}


@pytest.mark.parametrize("template", [TEMPLATE, [{"name": "default", "template": TEMPLATE}]])
def test_the_template_may_stand_in_the_tokenizer_config(template: Any, tmp_path: Path) -> None:
    folder = save(byte_level(), tmp_path)
    expected = Tokenizer.from_folder(folder).encode_chat(MESSAGES)
    (folder / "chat_template.jinja").unlink()
    amend(folder / "tokenizer_config.json", chat_template=template)
    assert Tokenizer.from_folder(folder).encode_chat(MESSAGES) == expected


def test_a_model_without_a_template_asks_for_raw_text(tmp_path: Path) -> None:
    folder = save(byte_level(), tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(PromptError, match=r"no chat template; give the prompt as raw text"):
        Tokenizer.from_folder(folder, "tiny").encode_chat(MESSAGES)


def test_a_template_may_refuse_messages_and_cannot_leave_its_sandbox(tmp_path: Path) -> None:
    folder = save(byte_level(), tmp_path)
    with pytest.raises(PromptError, match=r"unknown role wizard"):
        Tokenizer.from_folder(folder).encode_chat([{"role": "wizard", "content": "hello"}])
    (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(PromptError, match=r"unsafe"):
        Tokenizer.from_folder(folder).encode_chat(MESSAGES)
    (folder / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(ModelError, match=r"chat template is not valid Jinja"):
        Tokenizer.from_folder(folder)


def test_the_clock_of_a_template_is_now(tmp_path: Path) -> None:
    folder = save(byte_level(), tmp_path)
    (folder / "chat_template.jinja").write_text("{{ strftime_now('%Y') | length }}{{ enable }}")
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.decode(tokenizer.encode_chat(MESSAGES, enable="x")) == "4x"


def test_parts_of_a_message_are_one_text(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    parts = [{"type": "text", "text": "Fix"}, {"type": "text", "text": " this."}]
    assert tokenizer.encode_chat([{"role": "user", "content": parts}]) == tokenizer.encode_chat(
        [{"role": "user", "content": "Fix this."}]
    )


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user"}, "message of the user is not text"),
        ({"role": "user", "content": 5}, r"is not text \(5\)"),
        ({"role": "user", "content": [{"type": "image", "url": "x" * 90}]}, r"is not text \(.*\.\.\.\)"),
        ({"content": "hello"}, "a message has the role None"),
    ],
)
def test_a_message_that_is_no_text_is_refused(message: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises(PromptError, match=words):
        Tokenizer.from_folder(folder).encode_chat([message])


@pytest.mark.parametrize("content", [None, "{", '{"model": {}}'])
def test_a_folder_without_a_usable_tokenizer_is_named(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer"):
        Tokenizer.from_folder(tmp_path)


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(PromptError, match=r"UTF-8"):
        Tokenizer(byte_level(), name="tiny").encode("\udc80")


STREAMED = [Tokenizer(family(), name=family.__name__) for family in FAMILIES]


@pytest.mark.parametrize("tokenizer", STREAMED, ids=lambda tokenizer: tokenizer.name)
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_put_together_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    stream = tokenizer.stream()
    pieces = [*map(stream.step, ids), stream.flush()]
    assert "".join(pieces) == tokenizer.decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("tokenizer", STREAMED, ids=lambda tokenizer: tokenizer.name)
@given(data=st.data())
def test_pieces_of_any_tokens_put_together_are_their_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    # Bytes of a byte-fallback tokenizer that form no text are the exception that Detokenizer names.
    bytes_alone = {i for i, token in tokenizer.vocabulary.items() if token.startswith("<0x")}
    ids = data.draw(st.lists(st.sampled_from(sorted(tokenizer.vocabulary.keys() - bytes_alone)), max_size=12))
    stream = tokenizer.stream()
    pieces = [stream.step(token_id) for token_id in ids]
    assert "".join(pieces) + stream.flush() == tokenizer.decode(ids)
    assert stream.flush() == ""


def test_a_character_split_over_tokens_comes_out_with_its_last() -> None:
    tokenizer = Tokenizer(byte_level(), name="tiny")
    stream = tokenizer.stream()
    assert [stream.step(token_id) for token_id in tokenizer.encode("😀!")] == ["", "", "", "😀", "!"]
    unfinished = tokenizer.stream()
    assert [unfinished.step(token_id) for token_id in tokenizer.encode("😀")[:2]] == ["", ""]
    assert unfinished.flush() == "\ufffd"
    assert unfinished.flush() == ""


def test_invalid_bytes_after_a_character_do_not_stop_the_stream() -> None:
    tokenizer = Tokenizer(byte_fallback(), name="tiny")
    byte = {token: token_id for token_id, token in tokenizer.vocabulary.items()}
    stream = tokenizer.stream()
    ids = [byte[token] for token in ("<0xC3>", "<0xA9>", "<0xE2>", "a", "b")]
    assert [stream.step(token_id) for token_id in ids] == ["", "é", "", "\ufffda", "b"]


def test_special_tokens_and_padding_are_no_text() -> None:
    tokenizer = Tokenizer(word_piece(), name="tiny")
    words = tokenizer.encode("the dog")
    stream = tokenizer.stream()
    padding = tokenizer.vocab_size + 5
    ids = [words[0], SPECIAL.index("<|im_end|>"), padding, *words[1:]]
    assert "".join(map(stream.step, ids)) + stream.flush() == tokenizer.decode(ids) == "the dog"
    assert tokenizer.token(padding) is None


def test_padding_is_no_difference_and_another_vocabulary_is() -> None:
    small, large, other = (Tokenizer(byte_level(), name=name) for name in ("small", "large", "other"))
    large._backend.add_special_tokens(["<extra>"])
    assert small.difference(large) is None
    assert large.difference(small) is None
    assert small.fingerprint == Tokenizer(byte_level(), name="copy").fingerprint != large.fingerprint
    other._backend.add_tokens(["<other>"])
    assert large.difference(other) == f"id {small.vocab_size} is '<extra>' in large and '<other>' in other"
