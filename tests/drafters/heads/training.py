"""A little training, so that heads guess right what they have seen, through the statements of them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from tests.drafters.heads import published, statements

Weights = dict[str, Tensor]


def trained(method: str, weights: Weights, model: PreTrainedModel, text: Sequence[int]) -> Weights:
    """The weights after some steps of Adam on one text."""
    tokens = torch.tensor(text)
    with torch.no_grad():
        hidden = model(tokens[None], output_hidden_states=True, use_cache=False).hidden_states
    states = [each[0] for each in hidden]
    loss = {"medusa": _parallel, "blockwise": _parallel, "dflash": _dflash}.get(method, _eagle)
    learned = {
        key: tensor.clone().requires_grad_(tensor.is_floating_point()) for key, tensor in weights.items()
    }
    optimizer = torch.optim.Adam([tensor for tensor in learned.values() if tensor.requires_grad], lr=0.01)
    for _ in range(NUM_STEPS[method]):
        optimizer.zero_grad()
        loss(learned, model, tokens, states).backward()
        optimizer.step()
    return {key: tensor.detach() for key, tensor in learned.items()}


NUM_STEPS = {"medusa": 60, "blockwise": 60, "eagle": 80, "eagle3": 80, "dflash": 40}


def _parallel(weights: Weights, model: PreTrainedModel, tokens: Tensor, states: list[Tensor]) -> Tensor:
    logits = (
        statements.medusa(weights, states[-1])
        if "0.1.weight" in weights
        else statements.blockwise(weights, states[-1], model)
    )
    return torch.stack(
        [
            cross_entropy(logits[: len(tokens) - ahead, ahead - 2], tokens[ahead:])
            for ahead in range(2, 2 + logits.shape[1])
        ]
    ).mean()


def _eagle(weights: Weights, model: PreTrainedModel, tokens: Tensor, states: list[Tensor]) -> Tensor:
    """Two rounds, the second on the hidden states of the first."""
    count = published.NUM_LAYERS
    is_third = "midlayer.hidden_norm.weight" in weights
    hidden = states[-1]
    if is_third:
        hidden = torch.cat([states[2], states[count // 2], states[count - 3]], -1) @ weights["fc.weight"].T
    losses = []
    for ahead in (1, 2):
        following = tokens[ahead:-1]
        hidden = hidden[: len(following)]
        if is_third:
            hidden = statements.eagle3(weights, following, hidden, model)
            logits = statements.eagle3_logits(weights, hidden, published.VOCAB_SIZE)
        else:
            hidden = statements.eagle(weights, following, hidden)
            logits = hidden @ model.lm_head.weight.T
        seen = logits.gather(1, tokens[ahead + 1 :, None])[:, 0].isfinite()  # else the head cannot say it
        losses.append(cross_entropy(logits[seen], tokens[ahead + 1 :][seen]))
    return torch.stack(losses).mean()


def _dflash(weights: Weights, model: PreTrainedModel, tokens: Tensor, states: list[Tensor]) -> Tensor:
    features = torch.cat([states[number + 1] for number in published.DFLASH_LAYERS], -1)
    size = published.BLOCK_SIZE
    losses = []
    for anchor in range(9, len(tokens) - size, 3):
        logits = statements.dflash(
            weights, features[:anchor], int(tokens[anchor]), size, published.MASK_TOKEN, model
        )
        losses.append(cross_entropy(logits, tokens[anchor + 1 : anchor + size]))
    return torch.stack(losses).mean()
