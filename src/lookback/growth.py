"""How time and memory grow with length: the exponent of a power law, fitted on logarithms."""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from scipy import stats
from torch.profiler import ProfilerActivity, profile

from lookback import contestants
from lookback.attention import attend, attend_fused
from lookback.contestants import never_end
from lookback.data import Batch
from lookback.decode import greedy
from lookback.evaluate import validation_batch
from lookback.intervals import CONFIDENCE
from lookback.timing import Figure, Pair, Work, alternate
from lookback.train import Trainer

LENGTHS = (50, 100, 200, 400, 800)
STRINGS = 4  # in a batch
ROUNDS = 3  # at most: the longest take seconds


def exponent(points: Sequence[Pair]) -> tuple[float, float, float]:
    """Fit y = c x^e by least squares on logarithms (scipy.stats.linregress).

    Args:
        points: at least three pairs (x, y), all above 0.

    Returns:
        e, and the ends of its 95 % interval by Student's t with two degrees of freedom less than points: how well a
        power law fits these points, not how much another run would differ.
    """
    fit = stats.linregress(*np.log(np.array(points)).T)
    error = np.nan_to_num(fit.stderr)  # scipy has none for values that are all the same
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(points) - 2) * error)
    return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes of tensors that a piece of work holds at once, beyond those that were there before.

    Counted by torch's profiler from each allocation and release, so it does not depend on what the process kept.
    """
    with _nothing_on_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        work()
    assert found.profiler is not None
    assert found.profiler.kineto_results is not None
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    held, most = 0, 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


@contextmanager
def _nothing_on_stderr() -> Iterator[None]:
    """Kineto tells of its own start and end there, past Python."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def growth(work: Work) -> list[Figure]:
    """Exponents of length: of a training step, of decoding, and of attention alone, fused and by the formula.

    1 is a time that doubles with the length, 2 one that becomes four times as long. Of short strings most of the
    time is what any step costs, so an exponent over lengths that are not long is below that of the arithmetic.
    Fused attention keeps no weights, but torch makes numbers of the mask, one square for all heads and strings.
    """
    rounds = min(work.rounds, ROUNDS)
    batches = [validation_batch(work.config.task(), [length] * STRINGS) for length in LENGTHS]
    figures = []
    for name, made in (
        ("training step", _training(work)),
        ("decoding", _decoding(work)),
        ("fused attention", _attention(work, fused=True)),
        ("attention by the formula", _attention(work, fused=False)),
    ):
        works = [made(batch) for batch in batches]
        times = [statistics.median(found) for found in zip(*alternate(*works, rounds=rounds), strict=True)]
        memory = [peak_bytes(work) for work in works]
        if name == "decoding":
            times = [spent / length for spent, length in zip(times, LENGTHS, strict=True)]
        figures.append(_figure(f"{name}, time{' of a token' if name == 'decoding' else ''}", times))
        figures.append(_figure(f"{name}, memory", memory))
    return figures


def _figure(name: str, measured: Sequence[float]) -> Figure:
    points = [(float(length), float(value)) for length, value in zip(LENGTHS, measured, strict=True)]
    return Figure(name, "exponent", *exponent(points), points)


Maker = Callable[[Batch], Callable[[], object]]
"""Given a batch of one length, the work to be measured."""


def _training(work: Work) -> Maker:
    trainer = Trainer(contestants.ours(work.config), work.config.train)
    return lambda batch: lambda: trainer.advance(lambda _: batch)


def _decoding(work: Work) -> Maker:
    model = contestants.ours(work.config)
    never_end(model.output)
    return lambda batch: lambda: greedy(model, batch.source, batch.source_lengths, batch.source.shape[1] - 2)


def _attention(work: Work, fused: bool) -> Maker:
    model = work.config.raw["model"]
    heads, width = model["num_heads"], model["d_model"] // model["num_heads"]
    function: Callable[..., object] = attend_fused if fused else attend

    def of(batch: Batch) -> Callable[[], object]:
        places = batch.source.shape[1]
        query, key, value = (torch.randn(len(batch.source), heads, places, width) for _ in range(3))
        mask = torch.ones(1, 1, places, places, dtype=torch.bool).tril()
        return lambda: function(query, key, value, mask)

    return of
