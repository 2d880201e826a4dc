"""Speculative decoding in transformers: `model.generate(..., custom_generate=Speculative(drafter))`."""

from copy import deepcopy
from typing import Any, Literal

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.generation.streamers import BaseStreamer

from draftwise.drafters.base import Drafter
from draftwise.errors import UnsupportedError
from draftwise.integrations.transformers.row import Row, decode
from draftwise.integrations.transformers.settings import Asked, Place, num_padding, refuse_what_cannot_be
from draftwise.models.torch import TorchModel
from draftwise.tokenizer import Tokenizer

__all__ = ["Speculative", "generate"]


class Speculative:
    """A decoding method for `generate` of transformers that gives the same output from fewer passes.

    `drafter` and `num_draft_tokens`: as `draftwise.stream` takes them. `tokenizer`: the model's, for drafters
    that need it. `streamer`: as `generate` takes it, which does not hand its own to a custom method.

    Greedy and sampled decoding, with every logits processor of transformers that is a function of the tokens
    so far, custom ones if they are; every stopping criterion; batches with padding on the left, whose rows
    are decoded together. Raises UnsupportedError, by name, for what it cannot honour.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        num_draft_tokens: int | Literal["auto"] | None = "auto",
        tokenizer: PreTrainedTokenizerBase | None = None,
        streamer: BaseStreamer | None = None,
    ) -> None:
        self.drafter = drafter
        self.num_draft_tokens = num_draft_tokens
        self.tokenizer = None if tokenizer is None else _as_ours(tokenizer)
        self.streamer = streamer
        self._target: TorchModel | None = None  # the last model

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> GenerateDecoderOnlyOutput | torch.Tensor:
        """What `generate` of transformers calls: decode the rows of `input_ids` `[rows, tokens]`."""
        refuse_what_cannot_be(model, input_ids, logits_processor, generation_config, model_kwargs)
        asked = Asked(logits_processor, stopping_criteria, generation_config)
        if self._target is None or self._target.model is not model:
            self._target = TorchModel(model, self.tokenizer)
        if self.streamer is not None and len(input_ids) > 1:
            raise UnsupportedError("a streamer hears one row, and this is a batch; leave it out.")
        padding = num_padding(input_ids, model_kwargs)
        rows = [
            Row(Place(row, len(input_ids), padded[:count]), padded, asked, self.streamer)
            for row, (padded, count) in enumerate(zip(input_ids, padding, strict=True))
        ]
        keeps_logits = bool(generation_config.output_scores or generation_config.output_logits)
        decode(self._target, self.drafter, self.num_draft_tokens, rows, keeps_logits=keeps_logits)
        if self.streamer is not None:
            self.streamer.end()
        pad = generation_config._pad_token_tensor
        sequences = torch.nn.utils.rnn.pad_sequence(
            [row.ids for row in rows], batch_first=True, padding_value=0 if pad is None else int(pad)
        ).to(input_ids.device)
        if not generation_config.return_dict_in_generate:
            return sequences
        (row,) = rows if keeps_logits else (None,)
        return GenerateDecoderOnlyOutput(
            sequences=sequences,
            scores=tuple(row.scores) if row and generation_config.output_scores else None,
            logits=tuple(row.logits) if row and generation_config.output_logits else None,
        )


def generate(
    model: PreTrainedModel,
    inputs: torch.Tensor | None = None,
    *,
    drafter: Drafter,
    num_draft_tokens: int | Literal["auto"] | None = "auto",
    tokenizer: PreTrainedTokenizerBase | None = None,
    streamer: BaseStreamer | None = None,
    **kwargs: Any,
) -> GenerateDecoderOnlyOutput | torch.Tensor:
    """`model.generate(inputs, **kwargs)`, speculatively; with `streamer` and `stop_strings`, too.

    Raises UnsupportedError, by name, for what cannot be honoured, and what transformers raises.
    """
    for name in ("assistant_model", "custom_generate"):
        if kwargs.pop(name, None) is not None:
            raise UnsupportedError(f"{name} and drafter are two ways to guess; give the drafter alone.")
    config = kwargs.get("generation_config")
    stop_strings = kwargs.pop("stop_strings", None) or getattr(
        config or model.generation_config, "stop_strings", None
    )
    if stop_strings:
        if tokenizer is None:
            raise UnsupportedError("stop_strings need the tokenizer; give it as tokenizer.")
        kwargs["generation_config"] = deepcopy(config or model.generation_config)
        kwargs["generation_config"].stop_strings = None
        criterion = StopStringCriteria(tokenizer=tokenizer, stop_strings=stop_strings)
        kwargs["stopping_criteria"] = StoppingCriteriaList([*kwargs.get("stopping_criteria", ()), criterion])
    method = Speculative(drafter, num_draft_tokens=num_draft_tokens, tokenizer=tokenizer, streamer=streamer)
    if streamer is not None:
        kwargs["streamer"] = streamer  # transformers gives it the prompt, and no more
    made: GenerateDecoderOnlyOutput | torch.Tensor = model.generate(inputs, custom_generate=method, **kwargs)
    return made


def _as_ours(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise UnsupportedError(
            f"{type(tokenizer).__name__} has no backend of tokenizers; give a fast tokenizer."
        )
    return Tokenizer(deepcopy(tokenizer.backend_tokenizer), name=tokenizer.name_or_path)
