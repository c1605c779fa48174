"""The encoder-decoder Transformer (Vaswani et al. 2017) on our own attention layers.

The formula itself is `attend` in `lookback/attention.py`.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from lookback import masks
from lookback.attention import KeyValue, Maps
from lookback.models.base import Memory, Packs, Seq2Seq, State
from lookback.models.layers import RESIDUALS, DecoderLayer, EncoderLayer, Sizes, replaced, residual_connection
from lookback.packing import Packed
from lookback.positions.base import Positions
from lookback.rules import Fraction, PositiveInt
from lookback.view import View


class Transformer(Seq2Seq, Packs):
    """Encoder and decoder stacks of `num_layers` each.

    Unlike the paper (section 3.4), embeddings are not multiplied by sqrt(d_model). They start small beside the
    sinusoidal waves, so that attention finds places before it finds letters, and learning is twice as fast.

    Args:
        source_symbols: size of the source vocabulary, control tokens included.
        target_symbols: size of the target vocabulary.
        d_model: width of embeddings and layers; a multiple of num_heads.
        num_heads: attention heads in every attention layer.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: inner width of the feed-forward layers.
        dropout: on embeddings and on what each sublayer adds (section 5.4).
        norm: where LayerNorm stands: `pre` (before each sublayer), `post` (after, as in the paper), or nowhere.
        residual: False puts a sublayer's output in the place of its input, not on top of it.
        scale: False leaves scores undivided by sqrt(d_k).
        causal: False lets the decoder's self-attention see what is still to be written. Decoding step by step sees
            only what was written, so it is not what such a model was trained for.
        tied: one matrix for source and target embeddings and output (section 3.4).
        log_length: scores grow with the logarithm of the number of keys (`View.sharpness`), unlike the paper's.
        positions: makes a position encoding from (d_model, num_heads).

    Raises:
        ValueError: if sizes do not fit together.
    """

    def __init__(
        self,
        source_symbols: int,
        target_symbols: int,
        *,
        d_model: PositiveInt,
        num_heads: PositiveInt,
        num_layers: PositiveInt,
        d_ff: PositiveInt,
        dropout: Fraction,
        norm: Literal["pre", "post", "none"],
        residual: bool,
        scale: bool,
        causal: bool,
        tied: bool,
        log_length: bool,
        positions: Callable[[int, int], Positions],
    ) -> None:
        super().__init__()
        if tied and source_symbols != target_symbols:
            raise ValueError(
                "tied=True needs one vocabulary for source and target, "
                f"but they have {source_symbols} and {target_symbols} symbols"
            )
        self.source_embedding = nn.Embedding(source_symbols, d_model)
        self.target_embedding = self.source_embedding if tied else nn.Embedding(target_symbols, d_model)
        self.encoder_positions = positions(d_model, num_heads)
        self.decoder_positions = positions(d_model, num_heads)
        crosses = self.encoder_positions.crosses
        self.cross_positions = (positions if crosses else Positions)(d_model, num_heads)
        self.max_length = self.encoder_positions.max_length
        self.past = masks.causal if causal else masks.everywhere
        join = residual_connection if residual else replaced
        sizes = Sizes(d_model, num_heads, d_ff, dropout, norm, join, log_length, scale)
        self.encoder = nn.ModuleList(
            EncoderLayer(sizes, sizes.attention(f"encoder_self/layer{layer}", self.encoder_positions))
            for layer in range(num_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(
                sizes,
                sizes.attention(f"decoder_self/layer{layer}", self.decoder_positions),
                sizes.attention(f"cross/layer{layer}", self.cross_positions),
            )
            for layer in range(num_layers)
        )
        self.encoder_norm = RESIDUALS[norm].after_stack(d_model)
        self.decoder_norm = RESIDUALS[norm].after_stack(d_model)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(d_model, target_symbols, bias=False)
        if tied:
            self.output.weight = self.target_embedding.weight
        self._initialise(d_model)

    def _initialise(self, d_model: int) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=d_model**-0.5)

    def _embed(self, ids: Tensor, embedding: nn.Embedding, positions: Positions, index: Tensor) -> Tensor:
        x: Tensor = self.dropout(positions.embed(embedding(ids), index))
        return x

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        """See `Seq2Seq.encode`."""
        self.check_length("source", source.shape[1])
        index = torch.arange(source.shape[1], device=source.device)
        mask = masks.needed(lengths, source.shape[1])
        view = View(self.encoder_positions, index, index, mask, _fewest(lengths, mask))
        return Memory(self._encode(source, view, maps), lengths)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        """See `Seq2Seq.decode`."""
        self.check_length("target", target.shape[1])
        index = torch.arange(target.shape[1], device=target.device)
        self_view = View(self.decoder_positions, index, index, self.past(target.shape[1], target.device))
        return self._decode(target, memory.states, self_view, self._cross_view(index, memory), maps)

    def packed(self, batch: Packed) -> Tensor:
        """See `Packs.packed`."""
        source, target = batch.source, batch.target
        for what, side in (("source", source), ("target", target)):
            self.check_length(what, side.ids.shape[1])
        inside = masks.same(source.string, source.string)
        view = View(self.encoder_positions, source.index, source.index, inside, source.source_length, packed=True)
        states = self._encode(source.ids, view, None)
        past = masks.same(target.string, target.string) & self.past(target.ids.shape[1], target.ids.device)
        self_view = View(self.decoder_positions, target.index, target.index, past, packed=True)
        across = masks.same(target.string, source.string)
        cross_view = View(
            self.cross_positions, target.index, source.index, across, target.source_length, packed=True
        )
        return self._decode(target.ids, states, self_view, cross_view, None)

    def _encode(self, source: Tensor, view: View, maps: Maps | None) -> Tensor:
        x = self._embed(source, self.source_embedding, self.encoder_positions, view.query_index)
        for layer in self.encoder:
            x = layer(x, view, maps)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def _decode(
        self, target: Tensor, states: Tensor, self_view: View, cross_view: View, maps: Maps | None
    ) -> Tensor:
        x = self._embed(target, self.target_embedding, self.decoder_positions, self_view.query_index)
        for layer in self.decoder:
            memory = self._read(layer, states, cross_view.key_index)
            x = layer(x, lambda new: new, memory, self_view, cross_view, maps)
        return self.output(self.decoder_norm(x))  # type: ignore[no-any-return]

    def start(self, memory: Memory, max_length: int) -> State:
        """See `Seq2Seq.start`: room for every layer's keys and values, and those of the source.

        They are kept as (batch, heads, head_width, place): a product of one query with all keys then runs along
        memory, which is three times as fast.
        """
        cache: dict[str, Tensor] = {}
        for number, layer in enumerate(self.decoder):
            cross = self._read(
                layer, memory.states, torch.arange(memory.states.shape[1], device=memory.states.device)
            )
            batch, heads, _, head_width = cross.key.shape
            for name, part in zip(KeyValue._fields, cross, strict=True):
                cache[f"cross{number}/{name}"] = part.transpose(2, 3).contiguous()
                cache[f"self{number}/{name}"] = part.new_empty(batch, heads, head_width, max_length)
        return State(memory, 0, cache)

    def step(self, token: Tensor, state: State) -> Tensor:
        """See `Seq2Seq.step`."""
        self.check_length("target", state.length + 1)
        index = torch.tensor([state.length], device=token.device)
        self_view = View(self.decoder_positions, index, torch.arange(state.length + 1, device=token.device))
        cross_view = self._cross_view(index, state.memory)
        x = self._embed(token[:, None], self.target_embedding, self.decoder_positions, index)
        for number, layer in enumerate(self.decoder):
            kept, cross = (
                KeyValue(*(state.cache[f"{place}{number}/{name}"].transpose(2, 3) for name in KeyValue._fields))
                for place in ("self", "cross")
            )

            def past(new: KeyValue, kept: KeyValue = kept) -> KeyValue:
                for room, part in zip(kept, new, strict=True):
                    room[:, :, state.length] = part[:, :, 0]
                return KeyValue(*(room[:, :, : state.length + 1] for room in kept))

            x = layer(x, past, cross, self_view, cross_view, None)
        state.length += 1
        return self.output(self.decoder_norm(x))[:, 0]  # type: ignore[no-any-return]

    def sequential_steps(self, source: int, target: int) -> int:
        """See `Seq2Seq.sequential_steps`: a layer works on all places at once, whatever the lengths."""
        return len(self.encoder) + len(self.decoder)

    def _read(self, layer: nn.Module, states: Tensor, index: Tensor) -> KeyValue:
        """A decoder layer's keys and values of the source."""
        assert isinstance(layer, DecoderLayer)
        return layer.cross_attention.keys_values(states, self.cross_positions, index)

    def _cross_view(self, index: Tensor, memory: Memory) -> View:
        key_index = torch.arange(memory.states.shape[1], device=memory.states.device)
        lengths = _fewest(memory.lengths, memory.mask)
        return View(self.cross_positions, index, key_index, memory.mask, lengths)


def _fewest(lengths: Tensor, mask: Tensor | None) -> Tensor:
    """One length for all rows where nothing is hidden, so that one bias serves all of them."""
    return lengths[:1] if mask is None else lengths
