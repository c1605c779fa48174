"""Serial against parallel: what a training step waits for as strings get longer, and what a second core gains."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch

from lookback import comparison, config, session
from lookback.bench import Bench
from lookback.claims.base import Check, Claim, Numbers, Values, below, known, mean, table
from lookback.data import Batch
from lookback.evaluate import validation_batch
from lookback.launcher import compose
from lookback.plots import Plot
from lookback.sheets import Sheet
from lookback.timing import alternate
from lookback.train import Trainer

STRINGS = 16  # in a batch
LENGTHS, ROUNDS = (10, 20, 40, 80, 160), 6
QUICK_LENGTHS, QUICK_ROUNDS = (10, 20, 40), 3
PATIENCE = 10.0  # seconds a length, after which there are no more rounds than two
RNN, TRANSFORMER = "rnn", "transformer"

STEPS = "sequential steps"
ONE = "milliseconds on one core"
ALL = "milliseconds on all cores"
GAIN = "gain by all cores"
CORES = "cores"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads in torch inside, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def matched() -> dict[str, Trainer]:
    """The default Transformer, and the plain RNN at the width that gives it as many weights, to be trained."""
    raws = {name: compose("train", [f"model={name}", "train.device=cpu"]) for name in (RNN, TRANSFORMER)}
    wanted, raw = comparison.parameters_at(raws[TRANSFORMER]), raws[RNN]

    def at(width: int) -> dict[str, object]:
        return {**raw, "model": {**raw["model"], comparison.WIDTH: width}}

    width, _ = comparison.solve_width(lambda width: comparison.parameters_at(at(width)), wanted)
    built = {RNN: config.build(at(width)), TRANSFORMER: config.build(raws[TRANSFORMER])}
    return {name: Trainer(session.build(one)[1], one.train) for name, one in built.items()}


def work(trainer: Trainer, batch: Batch, steps: int, count: int) -> Callable[[], None]:
    """Some training steps on one batch, with so many threads."""

    def run() -> None:
        with threads(count):
            for _ in range(steps):
                trainer.advance(lambda _: batch)

    return run


def in_turn(works: Sequence[Callable[[], object]], rounds: int) -> list[tuple[float, ...]]:
    """`alternate`, but after two rounds no more of them than there is patience for: on a machine that is in use
    threads may wait for one another for long.
    """
    started = time.perf_counter()
    found = alternate(*works, rounds=min(2, rounds))
    while len(found) < rounds and time.perf_counter() - started < PATIENCE:
        found += alternate(*works, rounds=1, warm=False)
    return found


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Serial(Claim):
    """Section 1 of the first lesson; Vaswani et al. 2017, section 4 and table 1, "sequential operations"."""

    sentence = (
        "An RNN must work through a string symbol by symbol, so parallel hardware waits; "
        "the Transformer works on all symbols at once."
    )
    lesson = "first lesson, section 1; second lesson, the problem"
    setup = (
        f"Training steps on {STRINGS} strings of one length, of the plain RNN (an LSTM) and of the Transformer "
        "with as many weights, in turn, in several rounds. What waits for what is counted. What parallel hardware "
        "gains is seen by the same steps on one core and on all cores of this machine."
    )

    def measure(self, bench: Bench) -> Numbers:
        """Sequential steps, and milliseconds of a training step by length, a value a round."""
        lengths, rounds = (QUICK_LENGTHS, QUICK_ROUNDS) if bench.quick else (LENGTHS, ROUNDS)
        trainers = matched()
        task = config.build(compose("train")).task()
        counts = list(dict.fromkeys([1, cores()]))
        numbers: Numbers = {name: {CORES: [float(counts[-1])]} for name in trainers}
        for length in lengths:
            batch = validation_batch(task, [length] * STRINGS)
            steps = max(lengths) // length  # a round trains as many symbols at each length
            places = [(name, count) for name in trainers for count in counts]
            works = [work(trainers[name], batch, steps, count) for name, count in places]
            times = dict(zip(places, zip(*in_turn(works, rounds), strict=True), strict=True))
            for name, trainer in trainers.items():
                counted = trainer.model.sequential_steps(batch.source.shape[1], batch.decoder_input.shape[1])
                numbers[name][at(STEPS, length)] = [float(counted)]
                for measure, count in zip((ONE, ALL), counts, strict=False):
                    numbers[name][at(measure, length)] = [1000 * spent / steps for spent in times[name, count]]
                if len(counts) > 1:
                    pairs = zip(times[name, 1], times[name, counts[-1]], strict=True)
                    numbers[name][at(GAIN, length)] = [one / several for one, several in pairs]
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """What is counted, what a second core gains, and who is faster."""
        steps = {name: by_length(row, STEPS) for name, row in numbers.items()}
        longest = max(steps[RNN])
        slopes = {
            name: slope({length: mean(values) for length, values in row.items()}) for name, row in steps.items()
        }
        gains = {name: row.get(at(GAIN, longest), []) for name, row in numbers.items()}
        gained, gain_words = below(gains[RNN], gains[TRANSFORMER]) if gains[RNN] else (False, "only one core")
        last = ALL if gains[RNN] else ONE
        faster, time_words = below(numbers[TRANSFORMER][at(last, longest)], numbers[RNN][at(last, longest)])
        return [
            Check(
                "each symbol more adds the same number of sequential steps to the RNN, one or more, and none to "
                "the Transformer",
                min(slopes[RNN]) == max(slopes[RNN]) >= 1
                and min(slopes[TRANSFORMER]) == max(slopes[TRANSFORMER]) == 0,
                ", ".join(
                    f"{name} {mean(row[min(row)]):.0f} at {min(row)} symbols, {mean(row[longest]):.0f} at {longest}"
                    for name, row in steps.items()
                ),
                "what is counted is wrong",
                core=True,
            ),
            Check(
                f"at length {longest} all cores gain the RNN less than the Transformer: the 95 % interval of the "
                "difference is below 0",
                gained,
                gain_words,
                "a second core helps inside each product of matrices as well, and others may have been using it"
                if gains[RNN]
                else "with one core there is nothing to gain",
            ),
            Check(
                f"at length {longest} a step of the Transformer takes less time: the 95 % interval is below 0",
                faster,
                f"{time_words} milliseconds",
                "few cores are kept busy by either, and then time is the amount of arithmetic, not what waits",
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Sequential steps, time, and gain, against length."""
        lengths, rounds = "length of all strings", "milliseconds a training step"
        times = {
            f"{name}, {measure.removeprefix('milliseconds on ')}": found
            for name, row in numbers.items()
            for measure in (ONE, ALL)
            if (found := _line(row, measure))
        }
        steps = {name: _line(row, STEPS) for name, row in numbers.items()}
        gains = {name: found for name, row in numbers.items() if (found := _line(row, GAIN))}
        plots = [
            Plot(steps, lengths, "sequential steps of a pass", log_across=True, log_up=True),
            Plot(times, lengths, rounds, log_across=True, log_up=True),
        ]
        return [*plots, Plot(gains, lengths, "times as fast on all cores", log_across=True)] if gains else plots

    def tables(self, numbers: Numbers) -> list[Sheet]:
        """A row a model and length."""
        rows = {
            f"{name}, length {length}": {
                measure: row[at(measure, length)]
                for measure in (STEPS, ONE, ALL, GAIN)
                if at(measure, length) in row
            }
            for name, row in numbers.items()
            for length in by_length(row, STEPS)
        }
        return [table(self.first, rows, "A training step")]

    def notes(self, numbers: Numbers) -> list[str]:
        """What a few cores can show, and what not."""
        return [
            f"Measured with {mean(numbers[RNN][CORES]):.0f} cores; intervals are over rounds on one machine.",
            "A few cores can show whether there is work that can be done at the same time. They cannot show how "
            "long a GPU waits: it has thousands of units, and time there follows the sequential steps; here it "
            "follows the amount of arithmetic.",
            "The Transformer's arithmetic grows faster than the length: attention's own part with the square.",
            "Only training is parallel over the target. Written freely, both write symbol by symbol.",
        ]


def at(measure: str, length: int) -> str:
    """The name of a measure at one length."""
    return f"{measure} at {length}"


def by_length(row: dict[str, Values], measure: str) -> dict[int, Values]:
    """Length -> values of one measure."""
    start = f"{measure} at "
    return {int(name.removeprefix(start)): values for name, values in row.items() if name.startswith(start)}


def slope(points: dict[int, float]) -> list[float]:
    """What each length adds a symbol, beyond the length before it."""
    places = sorted(points)
    return [(points[longer] - points[shorter]) / (longer - shorter) for shorter, longer in pairwise(places)]


def _line(row: dict[str, Values], measure: str) -> dict[float, list[float]]:
    return {float(length): known(values) for length, values in by_length(row, measure).items()}
