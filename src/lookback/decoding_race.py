"""Greedy decoding raced: ours with its cache, nn.Transformer on the whole prefix, x-transformers with its cache."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lookback import contestants
from lookback.contestants import TORCH, X, never_end
from lookback.data import Batch
from lookback.decode import evaluating, greedy
from lookback.evaluate import validation_batch
from lookback.models.base import Seq2Seq
from lookback.models.transformer import Transformer
from lookback.peers import TorchTransformer, copy_weights, hidden
from lookback.timing import Row, Work, alternate, beside, milliseconds
from lookback.tokens import BOS, EOS

TIE = 1e-4  # logits closer than this may change places by rounding


@dataclass(frozen=True)
class Race:
    """How long the strings are and what is written, how many at once, and how often at most."""

    length: int
    batch: int
    rounds: int


RACES = (Race(20, 64, 15), Race(200, 64, 2), Race(1000, 4, 1))
"""Without a cache, time grows with the square of the length and more, so long ones are raced less often."""


def redecode(model: TorchTransformer, source: Tensor, lengths: Tensor, tokens: int) -> Tensor:
    """Greedy decoding as nn.Transformer lets one: at each step the decoder reads the whole prefix again.

    The sources are read once, and only the newest place is turned into logits. Where nothing is hidden there is no
    mask, as in ours. EOS stops nobody.

    Args:
        model: the model.
        source: (batch, source), ids.
        lengths: (batch,), real symbols of each row, marks included.
        tokens: how many to write.

    Returns:
        (batch, tokens), ids.
    """
    with evaluating(model):
        hidden_keys = hidden(lengths, source.shape[1]) if bool((lengths < source.shape[1]).any()) else None
        memory = model.encode(source, hidden_keys)
        prefix = torch.full((len(source), 1), BOS)
        for _ in range(tokens):
            states = model.decode(prefix, memory, hidden_keys)[:, -1:]
            prefix = torch.cat([prefix, model.output(states).argmax(dim=-1)], dim=1)
    return prefix[:, 1:]


@torch.no_grad()
def liven(model: Transformer) -> None:
    """Make embeddings as large as the waves of positions.

    Untrained models with small ones write one symbol over and over, and two that write the same show little by it.
    """
    model.target_embedding.weight.div_(model.target_embedding.weight.std())


def decoding(work: Work) -> list[Row]:
    """Milliseconds a step of decoding, all rows of a batch together, at each of `RACES`.

    Everybody decodes the same strings, freely and to the same number of tokens. Ours and nn.Transformer hold the
    same weights, so they must write the same.

    Raises:
        ArithmeticError: if they do not.
    """
    ours, second = contestants.ours(work.config), contestants.of_torch(work.config)
    liven(ours)
    never_end(ours.output)
    copy_weights(ours, second)
    writers: dict[str, Callable[[Batch, int], Tensor]] = {
        "ours": lambda batch, tokens: greedy(ours, batch.source, batch.source_lengths, tokens).tokens,
        TORCH: lambda batch, tokens: redecode(second, batch.source, batch.source_lengths, tokens),
    }
    if contestants.has_x():
        third = contestants.of_x(work.config)
        never_end(third.output)
        writers[X] = lambda batch, tokens: third.write(batch.source, batch.source_lengths, tokens)
    rows = []
    for race in RACES:
        rows += _raced(work, race, ours, writers)
    return rows


def _raced(work: Work, race: Race, ours: Seq2Seq, writers: dict[str, Callable[[Batch, int], Tensor]]) -> list[Row]:
    batch = validation_batch(work.config.task(), [race.length] * race.batch)
    wrote: dict[str, Tensor] = {}

    def round_of(name: str, tokens: int) -> Callable[[], None]:
        def write() -> None:
            wrote[name] = writers[name](batch, tokens)

        return write

    for name in writers:
        round_of(name, 2)()  # a whole round to warm up would take minutes
    rounds = min(work.rounds, race.rounds)
    times = alternate(*(round_of(name, race.length) for name in writers), rounds=rounds, warm=False)
    for name, tokens in wrote.items():
        if tokens.shape != (len(batch.source), race.length) or bool((tokens == EOS).any()):
            raise ArithmeticError(f"{name} must write {race.length} tokens without EOS, but ended earlier")
    check_same(ours, batch, wrote["ours"], wrote[TORCH])
    return [
        Row.of(
            f"decoding {race.length:,}, batch {len(batch.source)}",
            "ms/token",
            f"{name}, {'cached' if name == X else 'no cache'}",
            milliseconds(beside(times, place), race.length),
        )
        for place, name in enumerate(writers)
        if place
    ]


def check_same(model: Seq2Seq, batch: Batch, ours: Tensor, theirs: Tensor) -> None:
    """Refuse outputs that differ.

    Where two logits are equal but for rounding either may be taken, and what follows is another text; so the first
    difference of a row is forgiven if its two tokens are within `TIE` of each other.

    Args:
        model: what wrote `ours`.
        batch: what was read.
        ours: (batch, tokens), ids.
        theirs: likewise.

    Raises:
        ArithmeticError: naming row, place, both tokens and how far apart their logits are.
    """
    for row in (ours != theirs).any(dim=1).nonzero().flatten().tolist():
        place = int((ours[row] != theirs[row]).nonzero()[0])
        with evaluating(model):
            target = torch.cat([torch.tensor([BOS]), ours[row, :place]])[None]
            logits = model(batch.source[row : row + 1], batch.source_lengths[row : row + 1], target)[0, -1]
        tokens = int(ours[row, place]), int(theirs[row, place])
        apart = float(logits[tokens[0]] - logits[tokens[1]])
        if abs(apart) > TIE:
            raise ArithmeticError(
                f"ours and {TORCH} must write the same, but at place {place} of row {row} they wrote {tokens[0]} "
                f"and {tokens[1]}, whose logits are {apart:.2g} apart"
            )
