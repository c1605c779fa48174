"""Seconds of training until every string is right: ours and the peers, seed by seed in turn."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from torch import Tensor, nn

from lookback import contestants
from lookback.config import Config
from lookback.contestants import TORCH, X
from lookback.data import Batch, train_batch
from lookback.decode import evaluating
from lookback.evaluate import validation_batch
from lookback.models.base import Seq2Seq
from lookback.timing import Row, Work
from lookback.tokens import PAD
from lookback.train import Trainer

TWO_ENDED, SINUSOIDAL = "two-ended", "sinusoidal"
OVERRIDES: dict[str, tuple[str, ...]] = {
    TWO_ENDED: ("model/positions=two_ended", "model.log_length=true"),
    SINUSOIDAL: (),
    TORCH: (),
    X: (),
}
"""What each runner changes of the configuration; ours are the first two. A peer keeps to its own positions."""
BUILDERS: dict[str, Callable[[Config], nn.Module]] = {
    TWO_ENDED: contestants.ours,
    SINUSOIDAL: contestants.ours,
    TORCH: contestants.of_torch,
    X: contestants.of_x,
}
OURS = (TWO_ENDED, SINUSOIDAL)
SEEDS = (0, 1, 2)
LENGTHS = (1, 5, 10, 20)
STRINGS = 64  # of each length; of length 1 there are 26
EVERY = 25  # steps between looks
CAP = 3  # nobody trains longer than so many times train.steps


@dataclass(frozen=True)
class Finish:
    """When a training first had every string right; infinity if it never had."""

    seconds: float
    steps: float


NEVER = Finish(math.inf, math.inf)


def learning(work: Work) -> list[Row]:
    """Seconds of training, and steps, to exact match 1.00 at all of `LENGTHS`: each of ours against each peer.

    Looks at the validation strings take no time of the training's, for all alike; making batches does. The peers
    start from their own first weights, as people get them. A round is a seed.

    All have the rate and schedule of train.yaml, which were chosen for ours; peers might learn in fewer steps at
    others. The two-ended addresses know where a string that is read backwards begins; waves must find that out.
    """
    names = [name for name in OVERRIDES if name != X or contestants.has_x()]
    finishes: dict[str, list[Finish]] = {name: [] for name in names}
    for seed in SEEDS:
        for name in names:
            finishes[name].append(run(work.changed(*OVERRIDES[name], f"seed={seed}").config, BUILDERS[name]))
    return rows(finishes)


def run(loaded: Config, builder: Callable[[Config], nn.Module]) -> Finish:
    """Train one model from the start until every validation string is right, or for `CAP` times train.steps.

    The schedule is that of train.yaml: warm-up, and half a cosine to 0 at train.steps. Whoever has not finished
    by then goes on along the same cosine, which rises again and comes back to 0 a period later.
    """
    task = loaded.task()
    batch_at = partial(train_batch, task, loaded.data, loaded.seed)
    Trainer(cast(Seq2Seq, builder(loaded)), loaded.train).advance(batch_at)  # a first step is slow, and another's
    model = cast(Seq2Seq, builder(loaded))
    batch = validation_batch(task, [length for length in LENGTHS for _ in range(STRINGS)])
    trainer = Trainer(model, loaded.train)
    while trainer.step < CAP * loaded.train.updates:
        trainer.advance(batch_at)
        if trainer.step % EVERY == 0 and bool(all_right(model, batch).all()):
            trainer.drain()
            return Finish(trainer.seconds, trainer.step)
    return NEVER


def all_right(model: nn.Module, batch: Batch) -> Tensor:
    """Which rows greedy decoding would write exactly, EOS included, from a single pass by teacher forcing.

    If the likeliest token is the right one at every place given the right past, then by induction greedy decoding
    has the right past at every place, and writes the row; if it is wrong anywhere, decoding leaves the row at the
    first such place.

    Args:
        model: any.
        batch: what is to be read and written.

    Returns:
        (batch,) bool.
    """
    with evaluating(model):
        likeliest = model(batch.source, batch.source_lengths, batch.decoder_input).argmax(dim=-1)
    right: Tensor = (likeliest == batch.labels) | (batch.labels == PAD)
    return right.all(dim=1)


def rows(finishes: Mapping[str, Sequence[Finish]]) -> list[Row]:
    """Each of ours against each peer, seed by seed; the peer with the lowest median of seconds comes first.

    It is marked as the fastest, unless none has come to an end in half of the seeds or more.

    Args:
        finishes: by name, one a seed, in the same order of seeds.
    """
    peers = sorted(
        (name for name in finishes if name not in OURS), key=lambda name: _median_seconds(finishes[name])
    )
    found = []
    for name in OURS:
        for place, peer in enumerate(peers):
            pairs = list(zip(finishes[name], finishes[peer], strict=True))
            fastest = place == 0 and math.isfinite(_median_seconds(finishes[peer]))
            against = f"{peer} (fastest)" if fastest else peer
            seconds = [(ours.seconds, theirs.seconds) for ours, theirs in pairs]
            steps = [(ours.steps, theirs.steps) for ours, theirs in pairs]
            found.append(Row.of(f"{name}: to all right", "s", against, seconds))
            found.append(Row.of(f"{name}: to all right", "steps", against, steps))
    return found


def _median_seconds(finishes: Sequence[Finish]) -> float:
    return statistics.median(finish.seconds for finish in finishes)
