"""The bare loop that people write in place of `Rnn`, to test and time against. No model of ours is made of it."""

from typing import Literal

import torch
from torch import Tensor, nn

from lookback.models.rnn import Rnn
from lookback.peers import refuse_differences

TORCH_CELLS: dict[str, type[nn.GRU | nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class BareRnn(nn.Module):
    """The bare loop around `torch.nn.GRU` or `LSTM`: embeddings, one reads, one writes, and a linear output.

    Parameters are those of an `Rnn` that reads forward only, under the same names. It differs in one thing: the
    padded batch is read as it is, so the state that is handed over is the one after a row's pads, where `Rnn` hands
    over the one at the last real symbol. In batches without pads both compute the same function.

    Args:
        source_symbols: size of the source vocabulary, control tokens included.
        target_symbols: size of the target vocabulary.
        d_model: width of embeddings and states.
        num_layers: layers of the encoder, and of the decoder.
        cell: `gru` or `lstm`.
    """

    def __init__(
        self,
        source_symbols: int,
        target_symbols: int,
        *,
        d_model: int,
        num_layers: int,
        cell: Literal["gru", "lstm"],
    ) -> None:
        super().__init__()
        kind = TORCH_CELLS[cell]
        self.source_embedding = nn.Embedding(source_symbols, d_model)
        self.target_embedding = nn.Embedding(target_symbols, d_model)
        self.encoder = kind(d_model, d_model, num_layers, batch_first=True)
        self.decoder = kind(d_model, d_model, num_layers, batch_first=True)
        self.output = nn.Linear(d_model, target_symbols, bias=False)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Predict every next token of given targets at once.

        Args:
            source: (batch, source), ids; rows end in PAD.
            lengths: (batch,); not looked at.
            target: (batch, target), ids; starts with BOS.

        Returns:
            logits (batch, target, symbols).
        """
        _, final = self.encoder(self.source_embedding(source))  # (layers, batch, d_model); of an LSTM two
        states, _ = self.decoder(self.target_embedding(target), final)
        return self.output(states)  # type: ignore[no-any-return]


@torch.no_grad()
def copy_rnn_weights(ours: Rnn, theirs: BareRnn) -> None:
    """Give theirs the weights of ours. Copies, shares nothing; a tied matrix is copied to each of its three places.

    Raises:
        ValueError: if they differ in a size or a setting, naming what and both values.
    """
    sizes = [
        (model.source_embedding.num_embeddings, *reversed(model.output.weight.shape), model.encoder.num_layers)
        for model in (ours, theirs)
    ]
    names = ("source_symbols", "d_model", "target_symbols", "num_layers")
    forms: dict[str, tuple[object, ...]] = dict(zip(names, zip(*sizes, strict=True), strict=True))
    forms["cell"] = tuple(model.encoder.mode.lower() for model in (ours, theirs))
    forms["bidirectional"] = (ours.encoder.bidirectional, False)
    forms["dropout"] = (ours.dropout.p, 0.0)
    forms["source_order"] = (ours.source_order, "forward")
    refuse_differences(forms)
    theirs.load_state_dict(ours.state_dict())
