"""Writing a target token by token."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lookback.models.base import Seq2Seq
from lookback.tokens import BOS, EOS, PAD


@dataclass(frozen=True, eq=False)
class Decoded:
    """What a model wrote.

    Attributes:
        tokens: (batch, steps), ids without BOS; PAD after EOS.
        ended: (batch,) bool: the row wrote EOS; False = it was cut off at the cap.
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


def greedy(model: Seq2Seq, source: Tensor, lengths: Tensor, max_tokens: int) -> Decoded:
    """Take the likeliest token at each step, until every row has written EOS or the cap is reached.

    Args:
        model: any model.
        source: (batch, source), ids.
        lengths: (batch,), real symbols of each row, marks included.
        max_tokens: the cap; the model's own max_length, if lower, takes its place.

    Returns:
        tokens with at most max_tokens columns.
    """
    cap = max_tokens if model.max_length is None else min(max_tokens, model.max_length)
    with evaluating(model):
        state = model.start(model.encode(source, lengths), cap)
        token = torch.full_like(lengths, BOS)
        ended = torch.zeros_like(lengths, dtype=torch.bool)
        tokens = torch.full((len(lengths), cap), PAD, device=lengths.device)  # (batch, steps)
        steps = 0
        while steps < cap and not bool(ended.all()):
            token = model.step(token, state).argmax(dim=-1).masked_fill(ended, PAD)
            tokens[:, steps] = token
            ended = ended | (token == EOS)
            steps += 1
    return Decoded(tokens[:, :steps], ended)
