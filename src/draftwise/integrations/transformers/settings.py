"""What the arguments of transformers' `generate` are in draftwise's terms, and which have none."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import (
    GenerationMode,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from draftwise.errors import UnsupportedError
from draftwise.sampling import SamplingParams
from draftwise.types import Control, Logits, TokenIds

# Functions of the tokens and the logits alone, as a control of draftwise has to be. Others of transformers
# keep a state from step to step, run a model or look at an encoder's input.
_STATELESS = {
    "BarkEosPrioritizerLogitsProcessor",
    "EpsilonLogitsWarper",
    "EtaLogitsWarper",
    "ExponentialDecayLengthPenalty",
    "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "InfNanRemoveLogitsProcessor",
    "LogitNormalization",
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "MinPLogitsWarper",
    "NoBadWordsLogitsProcessor",
    "NoRepeatNGramLogitsProcessor",
    "PrefixConstrainedLogitsProcessor",
    "RepetitionPenaltyLogitsProcessor",
    "SequenceBiasLogitsProcessor",
    "SuppressTokensAtBeginLogitsProcessor",
    "SuppressTokensLogitsProcessor",
    "TemperatureLogitsWarper",
    "TopHLogitsWarper",
    "TopKLogitsWarper",
    "TopPLogitsWarper",
    "TypicalLogitsWarper",
    "WatermarkLogitsProcessor",
}
# What draftwise does itself where it comes last and in this order, and how the values are called.
_OWN = {
    TemperatureLogitsWarper: ("temperature", "temperature"),
    TopKLogitsWarper: ("top_k", "top_k"),
    TopPLogitsWarper: ("top_p", "top_p"),
    MinPLogitsWarper: ("min_p", "min_p"),
    TypicalLogitsWarper: ("mass", "typical_p"),
}
_MODES = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
_OUTPUTS = ("output_attentions", "output_hidden_states")
# What transformers itself prepares for a decoder, or what makes no difference to the output.
_KNOWN_INPUTS = {
    "attention_mask",
    "cache",
    "cache_position",
    "logits_to_keep",
    "position_ids",
    "use_cache",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What transformers made of the arguments of `generate`."""

    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    config: GenerationConfig

    @property
    def end_token_ids(self) -> list[int]:
        """Eos, if any, which one of the criteria ends at."""
        eos = self.config._eos_token_tensor
        return [] if eos is None else eos.tolist()


@dataclass(frozen=True, slots=True)
class Place:
    """A row as processors and criteria of transformers know it: by its number, and with its padding."""

    row: int
    num_rows: int
    padding: torch.Tensor

    def processed(
        self, processors: Tokens[Any], token_ids: torch.Tensor, scores: torch.Tensor
    ) -> torch.Tensor:
        """What they make of the scores `[vocabulary]` after `token_ids`, padding included."""
        changed = LogitsProcessorList(processors)(
            self._among_rows(token_ids), self._among_rows(scores).clone()
        )
        row: torch.Tensor = changed[self.row]
        return row

    def stops(self, criteria: StoppingCriteriaList, token_ids: torch.Tensor) -> bool:
        return bool(criteria(self._among_rows(token_ids), None)[self.row])

    def control(self, processors: Tokens[Any]) -> Control:
        """The processors as draftwise calls them, without the padding."""

        def processed(tokens: TokenIds, logits: Logits) -> Logits:
            token_ids = torch.cat([self.padding, torch.from_numpy(tokens.copy()).to(self.padding)])
            scores = torch.from_numpy(logits).to(self.padding.device)
            changed: Logits = self.processed(processors, token_ids, scores).cpu().numpy()
            return changed

        return processed

    def _among_rows(self, row: torch.Tensor) -> torch.Tensor:
        """Some processors hold something for each row of the batch: all the others are as this one."""
        return row.expand(self.num_rows, -1)


def sampling_of(asked: Asked, place: Place) -> SamplingParams:
    """What transformers would make of logits: what it can be in draftwise's terms, the rest as it is."""
    rest, order = list(asked.processors), list(_OWN)
    own: dict[str, Any] = {"temperature": float(bool(asked.config.do_sample))}
    while own["temperature"] and rest and type(rest[-1]) in order and _keeps_one(rest[-1]):
        attribute, name = _OWN[type(rest[-1])]
        order = order[: order.index(type(rest[-1]))]
        own[name] = getattr(rest.pop(), attribute)
    return SamplingParams(**own, processors=[place.control(rest)] if rest else ())


def _keeps_one(warper: Any) -> bool:
    """Whether it may leave a single token, as draftwise's filters do."""
    return getattr(warper, "min_tokens_to_keep", 1) == 1


def num_padding(input_ids: torch.Tensor, model_kwargs: dict[str, Any]) -> list[int]:
    """How many tokens on the left of each row are padding.

    Raises UnsupportedError for a mask that hides others and for positions that do not count those seen.
    """
    seen = model_kwargs.get("attention_mask")
    seen = torch.ones_like(input_ids) if seen is None else seen
    if bool((seen[:, 1:] < seen[:, :-1]).any()) or not bool(seen[:, -1].all()):
        raise UnsupportedError(
            "attention_mask hides tokens after the first that is seen; pad on the left alone "
            "(padding_side='left')."
        )
    positions = model_kwargs.get("position_ids")
    if positions is not None and not bool(((positions == seen.cumsum(-1) - 1) | (seen == 0)).all()):
        raise UnsupportedError("position_ids do not count the tokens from 0; leave them out.")
    return [int(count) for count in (seen == 0).sum(-1)]


def refuse_what_cannot_be(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    processors: LogitsProcessorList,
    config: GenerationConfig,
    model_kwargs: dict[str, Any],
) -> None:
    """Raise UnsupportedError for what would otherwise be ignored."""
    mode = config.get_generation_mode()
    refused: list[tuple[bool, str]] = [
        (model.config.is_encoder_decoder, "encoder-decoder models here (load them with draftwise.load)"),
        (
            mode not in _MODES,
            f"{mode.value.replace('_', ' ')} (num_beams, penalty_alpha, assistants and the like)",
        ),
        *((bool(getattr(config, name)), name) for name in _OUTPUTS),
        (
            bool(config.output_scores or config.output_logits) and len(input_ids) > 1,
            "output_scores and output_logits of more than one row",
        ),
        (_has_tokens(model_kwargs.get("cache")), "a cache that holds tokens (past_key_values)"),
        *((key not in _KNOWN_INPUTS and value is not None, key) for key, value in model_kwargs.items()),
    ]
    for processor in processors:
        name = type(processor).__name__
        of_transformers = type(processor).__module__.startswith("transformers.")
        refused.append((of_transformers and name not in _STATELESS, name))
    for is_asked_for, name in refused:
        if is_asked_for:
            raise UnsupportedError(
                f"speculative decoding in transformers cannot honour {name}; leave it out, or call generate "
                "without custom_generate."
            )


def _has_tokens(cache: Any) -> bool:
    return cache is not None and bool(cache.get_seq_length())
