"""How often each guess of each head is right: what a static tree is made of (Medusa, 2401.10774, 2.3.3)."""

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import torch
from numpy.typing import NDArray

from draftwise.drafters.heads.blockwise import BlockwiseHeads
from draftwise.drafters.heads.drafter import Heads
from draftwise.drafters.heads.medusa import MedusaHeads
from draftwise.drafters.heads.parallel import FINAL
from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.base import Tap


@torch.inference_mode()
def head_accuracies(
    heads: Heads, texts: Sequence[Sequence[int]], num_ranks: int = 10
) -> NDArray[np.floating]:
    """`[heads, ranks]`: how often the guess of that rank was the token that came, in texts of token ids.

    The texts are best the target's own. Raises UnsupportedError for heads that do not guess all positions
    from one hidden state, and OptionError for texts that are too short.
    """
    method = heads.method
    if not isinstance(method, BlockwiseHeads | MedusaHeads):
        raise UnsupportedError(
            f"{heads.name} has no head for each position; calibrate blockwise or Medusa heads, and give "
            "these a DynamicTree."
        )
    right: NDArray[np.floating] = np.zeros((method.default_num_draft_tokens, num_ranks))
    asked = np.zeros((len(right), 1))
    for text in texts:
        tap = Tap((FINAL,))
        with closing(heads.target.open(1, len(text), taps=[tap])) as state:
            state.begin(0, None)
            state.forward([text], [0])
            (hidden,) = tap.rows[0]
            logits = method.logits(torch.as_tensor(hidden))
        for head in range(min(len(right), len(text) - 2)):
            came = torch.tensor(text[head + 2 :], device=logits.device)
            guesses = logits[: len(came), head].topk(min(num_ranks, logits.shape[-1])).indices
            right[head, : guesses.shape[1]] += (guesses == came[:, None]).sum(0).cpu().numpy()
            asked[head] += len(came)
    if not asked.all():
        raise OptionError(f"no text has more than {len(right) + 1} tokens; give longer ones.")
    return right / asked
