"""Writing a target token by token."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback.models.base import Seq2Seq
from lookback.tokens import BOS, EOS, PAD, UNK


@dataclass(frozen=True, eq=False)
class Decoded:
    """What a model wrote.

    Attributes:
        tokens: (batch, steps), ids without BOS; PAD after the row's end.
        ended: (batch,) bool: the row wrote EOS; False = it was cut off at the cap, or where it was wrong.
    """

    tokens: Tensor
    ended: Tensor


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off and no gradients inside; the model's mode comes back afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def banned(logits: Tensor) -> Tensor:
    """Put out of reach what no target has: PAD and BOS, and UNK, which is no symbol of any text.

    Args:
        logits: (..., symbols), or their log-probabilities; changed in place.

    Returns:
        the same tensor, with -inf for these three.
    """
    for symbol in (PAD, BOS, UNK):
        logits[..., symbol] = -math.inf
    return logits


def greedy(
    model: Seq2Seq,
    source: Tensor,
    lengths: Tensor,
    max_tokens: int,
    wanted: Tensor | None = None,
    keep_all: bool = False,
) -> Decoded:
    """Take the likeliest token at each step, until every row has written EOS or the cap is reached.

    PAD, BOS and UNK are never taken. A row that has ended costs nothing once half of the rows have: what is kept
    for them is dropped.

    Args:
        model: any model.
        source: (batch, source), ids.
        lengths: (batch,), real symbols of each row, marks included.
        max_tokens: the cap; the model's own max_length, if lower, takes its place.
        wanted: (batch, any width), ids; if given, a row also ends at its first token that differs from these, which
            is written. Whether a row is right is the same with and without.
        keep_all: go on with rows that have ended, for what-if questions that know rows by their number.

    Returns:
        tokens with at most max_tokens columns.
    """
    cap = max_tokens if model.max_length is None else min(max_tokens, model.max_length)
    if wanted is not None:
        wanted = F.pad(wanted, (0, max(0, cap - wanted.shape[1])), value=PAD)
    with evaluating(model):
        state = model.start(model.encode(source, lengths), cap)
        token = torch.full_like(lengths, BOS)
        rows = torch.arange(len(lengths), device=lengths.device)  # those that the state still holds
        over = torch.zeros_like(lengths, dtype=torch.bool)
        tokens = torch.full((len(lengths), cap), PAD, device=lengths.device)  # (batch, steps)
        steps = 0
        while steps < cap and (left := len(rows) - int(over.sum())):
            if 2 * left <= len(rows) and not keep_all:
                state, token, rows, over = state.keep(~over), token[~over], rows[~over], over[~over]
            token = banned(model.step(token, state)).argmax(dim=-1).masked_fill(over, PAD)
            tokens[rows, steps] = token
            over = over | (token == EOS)
            if wanted is not None:
                over = over | (token != wanted[rows, steps])
            steps += 1
    return Decoded(tokens[:, :steps], (tokens == EOS).any(dim=1))
