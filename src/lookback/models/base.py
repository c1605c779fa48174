"""The door that every model shares, so that decoding, evaluation and the board know no model.

Axes: batch, source and target (length, marks included), d_model, symbols (size of the target vocabulary).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor, nn

from lookback import masks
from lookback.attention import Maps
from lookback.packing import Packed


@dataclass(frozen=True, eq=False)
class Memory:
    """What the encoder hands to the decoder.

    Attributes:
        states: (batch, source, d_model), one state a source symbol.
        lengths: (batch,), number of real source symbols in each row.
        final: where the encoder has states of its own to leave to the decoder: each with the batch as first axis.
    """

    states: Tensor
    lengths: Tensor
    final: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def mask(self) -> Tensor | None:
        """`masks.needed` over the states, found once and not at each step of decoding."""
        return masks.needed(self.lengths, self.states.shape[1])


@dataclass(eq=False)
class State:
    """What a decoder keeps between one-token steps.

    Attributes:
        memory: the encoder's result.
        length: number of target tokens read so far, the same for all rows.
        cache: the model's own tensors, each with the batch as first axis.
    """

    memory: Memory
    length: int
    cache: dict[str, Tensor]

    def keep(self, rows: Tensor) -> "State":
        """The state of some rows, so that the others cost nothing more.

        Args:
            rows: (batch,) bool; or the numbers of rows, (any length,), in any order: one that is named twice comes
                twice, each with a state of its own.
        """
        final = {name: part[rows] for name, part in self.memory.final.items()}
        memory = Memory(self.memory.states[rows], self.memory.lengths[rows], final)
        return State(memory, self.length, {name: part[rows] for name, part in self.cache.items()})


class Seq2Seq(nn.Module, ABC):
    """A model that reads a source and writes a target.

    Convention for constructors, here and in tasks and positions: what is known only at run time is positional,
    what the yaml decides is keyword-only and has no default.

    Attributes:
        max_length: the longest source or target, marks included, that the model can take; None = any.
        state_numbers: how many numbers the decoder learns of a source, however long; None = some for each symbol.
    """

    max_length: int | None = None
    state_numbers: int | None = None

    @abstractmethod
    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        """Read the sources.

        Args:
            source: (batch, source), ids; rows end in PAD.
            lengths: (batch,), real symbols of each row, marks included.
            maps: if given, attention weights are put here.
        """

    @abstractmethod
    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        """Predict every next token of given targets at once (teacher forcing).

        Args:
            target: (batch, target), ids; starts with BOS.
            memory: from `encode`.
            maps: if given, attention weights are put here.

        Returns:
            logits (batch, target, symbols); row t predicts token t + 1.
        """

    @abstractmethod
    def start(self, memory: Memory, max_length: int) -> State:
        """Prepare to decode token by token, up to max_length tokens read."""

    @abstractmethod
    def step(self, token: Tensor, state: State) -> Tensor:
        """Read one token a row, and predict the next; updates the state in place.

        Args:
            token: (batch,), ids.
            state: from `start`.

        Returns:
            logits (batch, symbols): the same as row `state.length` of `decode` on all tokens read so far.
        """

    @abstractmethod
    def sequential_steps(self, source: int, target: int) -> int:
        """How many layer applications must wait for one another in a teacher-forced pass (`encode`, `decode`).

        It is what more cores cannot shorten (Vaswani et al. 2017, table 1, "sequential operations").

        Args:
            source: length of the source, marks included.
            target: number of target tokens read.
        """

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor, maps: Maps | None = None) -> Tensor:
        """`encode`, then `decode`."""
        return self.decode(target, self.encode(source, lengths, maps), maps)

    def check_length(self, what: str, length: int) -> None:
        """Refuse a sequence that the model has no positions for.

        Raises:
            ValueError: naming the sequence, its length and the limit.
        """
        if self.max_length is not None and length > self.max_length:
            raise ValueError(
                f"{what} has length {length} (marks included), but the model's positions end at "
                f"{self.max_length} (model.positions.max_length)"
            )


class Packs(ABC):
    """What a model has that can learn from several strings a row, where attention keeps to each string's own."""

    @abstractmethod
    def packed(self, batch: Packed) -> Tensor:
        """Predict every next token of all targets at once: what `forward` does, without paying for pads.

        Returns:
            logits (row, place of the target, symbols).
        """
