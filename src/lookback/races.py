"""Races of training steps: the same batches, the same optimizer, all in turn."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lookback import contestants
from lookback.data import Batch
from lookback.models.base import Seq2Seq
from lookback.timing import Row, Work, alternate, beside, milliseconds, real_symbols
from lookback.train import Trainer

WIDE = ("model.d_model=256", "model.num_heads=4", "model.d_ff=1024", "data.batch_size=64", "data.max_length=20")
WIDE_ROUNDS, WIDE_STEPS = 5, 3  # a step takes many times as long


def training(work: Work) -> list[Row]:
    """Our training step against that of nn.Transformer, from the same weights, and that of x-transformers."""
    return race(work, contestants.transformers(work.config), ("training step", "real tokens"))


def wide(work: Work) -> list[Row]:
    """The same at a bigger size: `WIDE`."""
    work = work.changed(*WIDE).at_most(WIDE_ROUNDS, WIDE_STEPS)
    return race(work, contestants.transformers(work.config), ("wide training step", "wide real tokens"))


def recurrent(work: Work) -> list[Row]:
    """The training step of `rnn` against the same step of a bare loop around torch's, from the same weights."""
    return race(work, contestants.recurrent(work.config), ("rnn training step", "rnn real tokens"))


def race(work: Work, models: Mapping[str, Seq2Seq], names: tuple[str, str]) -> list[Row]:
    """Train all in turn.

    The step is `Trainer.advance` for all: forward, loss, backward, clipping, AdamW, and counting what was
    right. All get the same batches, which are made beforehand.

    Args:
        work: what is to be done.
        models: ours first, then the peers by name; the first peer starts from the weights of ours.
        names: of the rows: milliseconds a step, and symbols of source and target a second, pads not counted.

    Returns:
        these two rows against each peer, and the loss of the first step against the first.
    """
    trainers = [Trainer(model, work.config.train) for model in models.values()]
    batches = work.batches()
    times = alternate(*steps_of(trainers, batches, work.steps), rounds=work.rounds)
    tokens = [
        sum(counts) for counts in timed_counts(work, batches, lambda batch: sum(map(sum, real_symbols(batch))))
    ]
    losses = [trainer.drain()[0].loss for trainer in trainers]
    rows = []
    for place, peer in enumerate(list(models)[1:], start=1):
        pairs = beside(times, place)
        speeds = [(count / ours, count / theirs) for count, (ours, theirs) in zip(tokens, pairs, strict=True)]
        rows.append(Row.of(names[0], "ms", peer, milliseconds(pairs, work.steps)))
        rows.append(Row.of(names[1], "per second", peer, speeds))
        if place == 1:
            name = names[0].removesuffix("training step") + "loss of first step"
            rows.append(Row.of(name, "nats", peer, [(losses[0], losses[1])]))
    return rows


def steps_of(trainers: Sequence[Trainer], batches: Sequence[Batch], steps: int) -> list[Callable[[], None]]:
    """For each trainer: one round of training, the next of its batches."""
    return [partial(advance, trainer, batches, steps) for trainer in trainers]


def advance(trainer: Trainer, batches: Sequence[Batch], steps: int) -> None:
    """Train for some steps, each on the batch of its number."""
    for _ in range(steps):
        trainer.advance(batches.__getitem__)


def timed_counts(work: Work, batches: Sequence[Batch], count: Callable[[Batch], int]) -> list[list[int]]:
    """What `count` says of each batch, by the timed round in which it was used."""
    counts = [count(batch) for batch in batches]
    return [counts[start : start + work.steps] for start in range(work.steps, len(counts), work.steps)]
