"""What the RNN models share: reading with a recurrent encoder, and a decoder that keeps a hidden state.

Axes as in `models/base.py`; `hidden` is a layer's state, as wide as everything else: d_model.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lookback import masks
from lookback.attention import AttentionLayer, Maps, masked_softmax
from lookback.models.base import Memory, Seq2Seq, State

Hidden = tuple[Tensor, ...]
"""The state of all layers: one tensor for a GRU, two (hidden, cell) for an LSTM; each (layers, batch, d_model)."""

CELLS: dict[str, tuple[type[nn.GRU | nn.LSTM], tuple[str, ...]]] = {
    "gru": (nn.GRU, ("hidden",)),
    "lstm": (nn.LSTM, ("hidden", "cell")),
}


class Dot(nn.Module):
    """score = query . state (Luong et al. 2015, section 3.1)."""

    formula = "query . state"

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def keys(self, states: Tensor) -> Tensor:
        """What of the scores depends on the source alone: (batch, source, d_model) -> the same."""
        return states

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(batch, query, d_model), (batch, key, d_model) -> scores (batch, query, key)."""
        return query @ keys.transpose(-2, -1)


class General(nn.Module):
    """score = query . W state (Luong et al. 2015, section 3.1)."""

    formula = "query . W state"

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.key_projection = nn.Linear(d_model, d_model, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        """See `Dot.keys`."""
        return self.key_projection(states)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """See `Dot.forward`."""
        return query @ keys.transpose(-2, -1)


class Additive(nn.Module):
    """score = v . tanh(W query + U state) (Bahdanau et al. 2014, appendix A.1.2)."""

    formula = "v . tanh(W query + U state)"

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model, bias=False)
        self.score = nn.Linear(d_model, 1, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        """See `Dot.keys`."""
        return self.key_projection(states)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """See `Dot.forward`."""
        hidden = torch.tanh(
            self.query_projection(query)[:, :, None] + keys[:, None]
        )  # (batch, query, key, d_model)
        return self.score(hidden)[..., 0]  # type: ignore[no-any-return]


SCORES: dict[str, type[Dot | General | Additive]] = {"dot": Dot, "general": General, "additive": Additive}


class LookBack(AttentionLayer):
    """One head of attention over the encoder's states: the context is their mean, weighted by softmax(scores).

    It is the one cross-attention of its model: its place is `cross/layer0`.

    Args:
        score: the function that scores states; takes and gives what `Dot` does.
    """

    def __init__(self, score: Dot | General | Additive) -> None:
        super().__init__("cross/layer0", num_heads=1)
        self.score = score

    def forward(self, query: Tensor, keys: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Look at the source.

        Args:
            query: (batch, query, d_model), decoder states.
            keys: from `score.keys(memory.states)`.
            memory: the encoder's result.

        Returns:
            context (batch, query, d_model) and weights (batch, heads=1, query, key), exactly 0 on pads.
        """
        mask = masks.padding(memory.lengths, memory.states.shape[1])
        weights = masked_softmax(self.score(query, keys)[:, None], mask)
        if self.change is not None:
            weights = self.change(weights, mask)
        return weights[:, 0].to(memory.states.dtype) @ memory.states, weights


def reverse_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """Turn each row around within its own length: (batch, width), (batch,) -> (batch, width)."""
    place = torch.arange(x.shape[1], device=x.device)
    return x.gather(1, torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place))


class Recurrent(Seq2Seq):
    """A recurrent encoder and decoder; a subclass says how the decoder writes.

    Args:
        source_symbols: size of the source vocabulary, control tokens included.
        target_symbols: size of the target vocabulary.
        d_model: width of embeddings and states; even where the encoder is bidirectional, half for each direction.
        num_layers: recurrent layers of the encoder, and of the decoder.
        cell: `gru` (Cho et al. 2014) or `lstm` (Hochreiter and Schmidhuber 1997).
        bidirectional: whether the encoder also reads from the end.
        dropout: on embeddings, between layers, and before the output.
        tied: one matrix for source and target embeddings and output.
        decoder_inputs: how many vectors of width d_model the decoder reads at each step.

    Raises:
        ValueError: if sizes do not fit together.
    """

    def __init__(
        self,
        source_symbols: int,
        target_symbols: int,
        d_model: int,
        num_layers: int,
        cell: str,
        bidirectional: bool,
        dropout: float,
        tied: bool,
        decoder_inputs: int = 1,
    ) -> None:
        super().__init__()
        if tied and source_symbols != target_symbols:
            raise ValueError(
                "tied=True needs one vocabulary for source and target, "
                f"but they have {source_symbols} and {target_symbols} symbols"
            )
        directions = 2 if bidirectional else 1
        if d_model % directions != 0:
            raise ValueError(f"d_model must be even for a bidirectional encoder, but is {d_model}")
        kind, self.parts = CELLS[cell]
        between = dropout if num_layers > 1 else 0.0  # torch warns of a dropout that stands nowhere
        self.source_embedding = nn.Embedding(source_symbols, d_model)
        self.target_embedding = self.source_embedding if tied else nn.Embedding(target_symbols, d_model)
        self.encoder = kind(
            d_model,
            d_model // directions,
            num_layers,
            batch_first=True,
            dropout=between,
            bidirectional=bidirectional,
        )
        self.decoder = kind(decoder_inputs * d_model, d_model, num_layers, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(d_model, target_symbols, bias=False)
        nn.init.xavier_uniform_(self.output.weight)
        if tied:
            self.output.weight = self.target_embedding.weight
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=d_model**-0.5)

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        """See `Seq2Seq.encode`. Rows are packed, so that no state ever comes from a pad."""
        x = self.dropout(self.source_embedding(source))
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        with torch.autocast("cpu", enabled=False):
            outputs, final = self.encoder(packed)
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=source.shape[1])
        return Memory(states, lengths, self._by_batch(final))

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        """See `Seq2Seq.decode`."""
        hidden = self._by_layer(memory.final)
        states, _ = self.write(self._embed(target), hidden, memory, self.read(memory), maps)
        return self.output(self.dropout(states))  # type: ignore[no-any-return]

    def start(self, memory: Memory, max_length: int) -> State:
        """See `Seq2Seq.start`."""
        return State(memory, 0, {**memory.final, **self.read(memory)})

    def step(self, token: Tensor, state: State) -> Tensor:
        """See `Seq2Seq.step`."""
        hidden = self._by_layer(state.cache)
        states, hidden = self.write(self._embed(token[:, None]), hidden, state.memory, state.cache, None)
        state.cache.update(self._by_batch(hidden))
        state.length += 1
        return self.output(self.dropout(states))[:, 0]  # type: ignore[no-any-return]

    def sequential_steps(self, source: int, target: int) -> int:
        """See `Seq2Seq.sequential_steps`.

        A layer above may follow one step behind; only above a bidirectional one it must wait for the whole row. The
        decoder's lower layers may begin while the encoder's upper ones end, so its top layer alone counts.
        """
        layers = self.encoder.num_layers
        reading = layers * source if self.encoder.bidirectional else source + layers - 1
        return reading + self.writing_steps(target)

    def writing_steps(self, target: int) -> int:
        """How many of these belong to the decoder, after the encoder has ended."""
        return target

    def read(self, memory: Memory) -> dict[str, Tensor]:
        """What the decoder works out once for each source and then keeps; each batch first. By default nothing."""
        return {}

    @abstractmethod
    def write(
        self, x: Tensor, hidden: Hidden, memory: Memory, kept: dict[str, Tensor], maps: Maps | None
    ) -> tuple[Tensor, Hidden]:
        """Run the decoder over some target places, one or all.

        Args:
            x: (batch, target, d_model), embeddings.
            hidden: the decoder's state before the first of them.
            memory: the encoder's result.
            kept: has at least what `read` gave.
            maps: as in `Seq2Seq.decode`.

        Returns:
            what the output is read from, (batch, target, d_model), and the state after the last place.
        """

    def run(self, x: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """The decoder's layers over inputs (batch, target, width): states of the top layer, and the new state."""
        with torch.autocast("cpu", enabled=False):
            states, final = self.decoder(self._float(x), hidden if len(self.parts) > 1 else hidden[0])
        return states, final if isinstance(final, tuple) else (final,)

    @staticmethod
    def _float(x: Tensor) -> Tensor:
        """What autocast made narrow becomes float32 again, on the CPU: torch has no LSTM for less there."""
        return x.float() if x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16) else x

    def _embed(self, target: Tensor) -> Tensor:
        return self.dropout(self.target_embedding(target))  # type: ignore[no-any-return]

    def _by_batch(self, final: Tensor | Hidden) -> dict[str, Tensor]:
        """From torch's (layers x directions, batch, width) -> (batch, layers, d_model) each, by name."""
        tensors = final if isinstance(final, tuple) else (final,)
        layers = self.decoder.num_layers
        named = zip(self.parts, tensors, strict=True)
        batch = tensors[0].shape[1]
        return {
            name: part.view(layers, -1, batch, part.shape[2]).permute(2, 0, 1, 3).flatten(2)  # directions joined
            for name, part in named
        }

    def _by_layer(self, kept: dict[str, Tensor]) -> Hidden:
        """(batch, layers, d_model) each, by name -> torch's (layers, batch, d_model)."""
        return tuple(kept[name].transpose(0, 1).contiguous() for name in self.parts)
