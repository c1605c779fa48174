"""What is measured. Real tokens are the target's symbols and its EOS; pads never count."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lookback.tokens import PAD, UNK


def sequence_loss(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross entropy in nats, the mean over real tokens, however wide the batch is padded.

    Args:
        logits: (batch, target, symbols).
        labels: (batch, target), PAD where there is nothing to predict.
        label_smoothing: share of the mass spread evenly over all symbols.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=label_smoothing)


@dataclass(frozen=True, eq=False)
class Score:
    """How far outputs agree with their references.

    Attributes:
        exact_match: (batch,) bool: the row is right up to and including its EOS; what follows EOS is not looked at.
        hits: (batch,), real tokens of the reference that stand at the same place in the output.
        tokens: (batch,), real tokens of the reference.
    """

    exact_match: Tensor
    hits: Tensor
    tokens: Tensor

    @property
    def token_accuracy(self) -> float:
        """Share of all real tokens that are right."""
        return int(self.hits.sum()) / int(self.tokens.sum())


def score(output: Tensor, labels: Tensor) -> Score:
    """Compare outputs with labels, place by place. Nothing is right where an unknown symbol is wanted.

    Args:
        output: (batch, any width), ids.
        labels: (batch, target), ids, each row ending in EOS and then PAD.
    """
    width = labels.shape[1]
    output = F.pad(output, (0, max(0, width - output.shape[1])), value=PAD)[:, :width]
    real = labels != PAD
    right = (output == labels) & real & (labels != UNK)
    return Score((right | ~real).all(dim=1), right.sum(dim=1), real.sum(dim=1))
