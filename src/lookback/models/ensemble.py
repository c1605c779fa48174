"""Several models that write one text together: the mean of their probabilities at each step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback.attention import Maps
from lookback.decode import evaluating
from lookback.models.base import Memory, Seq2Seq, State
from lookback.tokens import BOS, EOS


def log_mean(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities, so that softmax of it is that mean.

    Args:
        logits: of each member, (..., symbols).

    Returns:
        (..., symbols), at least float32.
    """
    wide = [part if part.dtype == torch.float64 else part.float() for part in logits]
    likely = torch.stack([F.log_softmax(part, dim=-1) for part in wide])
    return torch.logsumexp(likely, dim=0) - math.log(len(logits))


@dataclass(frozen=True, eq=False)
class Memories(Memory):
    """What the encoders hand to the decoders.

    Attributes:
        states: those of the first member.
        members: what each member's encoder hands to its decoder.
    """

    members: tuple[Memory, ...] = ()


@dataclass(eq=False)
class States(State):
    """What the decoders keep between steps.

    Attributes:
        memory: a `Memories`.
        cache: empty; each member has its own.
        members: each member's state.
    """

    members: tuple[State, ...] = ()

    def keep(self, rows: Tensor) -> "States":
        """See `State.keep`."""
        return together([state.keep(rows) for state in self.members])


def together(states: Sequence[State]) -> States:
    """The members' states as one."""
    return States(_joined([state.memory for state in states]), states[0].length, {}, tuple(states))


def _joined(memories: Sequence[Memory]) -> Memories:
    first = memories[0]
    return Memories(first.states, first.lengths, first.final, tuple(memories))


class Ensemble(Seq2Seq):
    """Predicts the mean of its members' probabilities (the linear opinion pool: Stone 1961, "The opinion pool").

    Members may be of different kinds and sizes. They must read the same sources and write the same targets, with
    one vocabulary for all.

    Args:
        members: the models; no copies are made.

    Raises:
        ValueError: if there is none, or if they differ in the number of target symbols.
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        if not members:
            raise ValueError("an ensemble must have at least 1 member, but has 0")
        symbols = [target_symbols(member) for member in members]
        if len(set(symbols)) > 1:
            raise ValueError(
                f"members of an ensemble must have the same number of target symbols, but have {symbols}"
            )
        self.members = nn.ModuleList(members)
        limits = [member.max_length for member in members if member.max_length is not None]
        self.max_length = min(limits, default=None)

    @property
    def models(self) -> list[Seq2Seq]:
        """The members, as what they are."""
        return [member for member in self.members if isinstance(member, Seq2Seq)]

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memories:
        """See `Seq2Seq.encode`.

        Raises:
            ValueError: if maps are asked for.
        """
        _refuse(maps)
        return _joined([member.encode(source, lengths) for member in self.models])

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        """See `Seq2Seq.decode`.

        Raises:
            ValueError: if maps are asked for.
        """
        _refuse(maps)
        assert isinstance(memory, Memories)
        pairs = zip(self.models, memory.members, strict=True)
        return log_mean([member.decode(target, own) for member, own in pairs])

    def start(self, memory: Memory, max_length: int) -> States:
        """See `Seq2Seq.start`."""
        assert isinstance(memory, Memories)
        pairs = zip(self.models, memory.members, strict=True)
        return together([member.start(own, max_length) for member, own in pairs])

    def step(self, token: Tensor, state: State) -> Tensor:
        """See `Seq2Seq.step`."""
        assert isinstance(state, States)
        logits = [member.step(token, own) for member, own in zip(self.models, state.members, strict=True)]
        state.length += 1
        return log_mean(logits)

    def sequential_steps(self, source: int, target: int) -> int:
        """See `Seq2Seq.sequential_steps`: the sum, since members run one after another."""
        return sum(member.sequential_steps(source, target) for member in self.models)


def target_symbols(model: Seq2Seq) -> int:
    """The size of a model's target vocabulary, found by writing one token of an empty source."""
    device = next((parameter.device for parameter in model.parameters()), None)
    source, target = (torch.tensor([ids], device=device) for ids in ([BOS, EOS], [BOS]))
    with evaluating(model):
        logits: Tensor = model(source, torch.tensor([2], device=device), target)
    return logits.shape[-1]


def _refuse(maps: Maps | None) -> None:
    if maps is not None:
        raise ValueError("attention maps are of one model, but an ensemble was asked for them: ask a member")
