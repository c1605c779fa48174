"""Several models as one: the mean of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lookback.attention import Maps
from lookback.models.base import Memory, Seq2Seq, State


@dataclass(frozen=True, eq=False)
class EnsembleMemory(Memory):
    """What the encoders hand to the decoders; the states are those of the first member."""

    parts: tuple[Memory, ...] = ()


@dataclass(eq=False)
class EnsembleState(State):
    """What the decoders keep."""

    parts: tuple[State, ...] = ()

    def keep(self, rows: Tensor) -> "EnsembleState":
        """See `State.keep`."""
        parts = tuple(part.keep(rows) for part in self.parts)
        return EnsembleState(parts[0].memory, self.length, {}, parts)


class Ensemble(Seq2Seq):
    """Models that predict together: at each step the mean of their probabilities.

    As in the ensembles of Sutskever et al. 2014. Its logits are the logarithms of that mean, so that whatever
    decodes one model decodes this.

    Args:
        members: at least one, over the same symbols.

    Raises:
        ValueError: if there is no member.
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        if not members:
            raise ValueError("members must be at least one, but there are none")
        self.members = nn.ModuleList(members)
        limits = [member.max_length for member in members if member.max_length is not None]
        self.max_length = min(limits, default=None)

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> EnsembleMemory:
        """See `Seq2Seq.encode`."""
        _refuse(maps)
        parts = tuple(member.encode(source, lengths) for member in self._each())
        return EnsembleMemory(parts[0].states, parts[0].lengths, parts[0].final, parts)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        """See `Seq2Seq.decode`."""
        _refuse(maps)
        assert isinstance(memory, EnsembleMemory)
        pairs = zip(self._each(), memory.parts, strict=True)
        return mean_of([member.decode(target, part) for member, part in pairs])

    def start(self, memory: Memory, max_length: int) -> EnsembleState:
        """See `Seq2Seq.start`."""
        assert isinstance(memory, EnsembleMemory)
        parts = [member.start(part, max_length) for member, part in zip(self._each(), memory.parts, strict=True)]
        return EnsembleState(memory, 0, {}, tuple(parts))

    def step(self, token: Tensor, state: State) -> Tensor:
        """See `Seq2Seq.step`."""
        assert isinstance(state, EnsembleState)
        logits = [member.step(token, part) for member, part in zip(self._each(), state.parts, strict=True)]
        state.length += 1
        return mean_of(logits)

    def sequential_steps(self, source: int, target: int) -> int:
        """See `Seq2Seq.sequential_steps`: members wait for nobody, so it is the slowest's."""
        return max(member.sequential_steps(source, target) for member in self._each())

    def _each(self) -> list[Seq2Seq]:
        return list(self.members)  # type: ignore[arg-type]


def mean_of(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean probability: (batch, ..., symbols) each, and so the result."""
    each = torch.stack([torch.log_softmax(one.float(), dim=-1) for one in logits])
    return torch.logsumexp(each, dim=0) - math.log(len(logits))


def _refuse(maps: Maps | None) -> None:
    if maps is not None:
        raise ValueError("maps must be asked of one model, but there are several: take its run alone")
