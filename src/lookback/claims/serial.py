"""Serial against parallel: what a training step waits for as strings get longer, and what a second core gains."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch

from lookback import config, learner
from lookback.bench import Bench
from lookback.claims.base import Check, Claim, Numbers, Values, below, known, mean
from lookback.data import Batch
from lookback.evaluate import validation_batch
from lookback.launcher import compose
from lookback.plots import Plot
from lookback.timing import alternate
from lookback.train import Trainer

STRINGS = 16  # in a batch
LENGTHS, ROUNDS = (10, 20, 40, 80, 160), 10
QUICK_LENGTHS, QUICK_ROUNDS = (10, 20, 40), 3
PATIENCE = 10.0  # seconds a length, after which there are no more rounds than two
MODELS = RNN, TRANSFORMER = "rnn", "transformer"

STEPS = "sequential steps"
ONE = "milliseconds on one core"
ALL = "milliseconds on all cores"
GAIN = "gain by all cores"


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
    """The plain RNN and the default Transformer, whose yaml files give them as many weights, to be trained."""
    built = {name: config.build(compose("train", [f"model={name}", "train.device=cpu"])) for name in MODELS}
    return {name: Trainer(learner.build(one)[1], one.train) for name, one in built.items()}


def work(trainer: Trainer, batch: Batch, steps: int, count: int) -> Callable[[], None]:
    """Some training steps on one batch, with so many threads."""

    def run() -> None:
        with threads(count):
            for _ in range(steps):
                trainer.advance(lambda _: batch)

    return run


def in_turn(works: Sequence[Callable[[], object]], rounds: int) -> list[tuple[float, ...]]:
    """`alternate`, but two rounds only where they take long: threads wait for one another on a busy machine."""
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
        counts = [1] if cores() == 1 else [1, cores()]
        numbers: Numbers = {f"{name}, length {length}": {} for name in trainers for length in lengths}
        for length in lengths:
            batch = validation_batch(task, [length] * STRINGS)
            steps = max(lengths) // length  # a round trains as many symbols at each length
            places = [(name, count) for name in trainers for count in counts]
            works = [work(trainers[name], batch, steps, count) for name, count in places]
            times = dict(zip(places, zip(*in_turn(works, rounds), strict=True), strict=True))
            for name, trainer in trainers.items():
                row = numbers[f"{name}, length {length}"]
                counted = trainer.model.sequential_steps(batch.source.shape[1], batch.decoder_input.shape[1])
                row[STEPS] = [float(counted)]
                row[ONE] = [1000 * spent / steps for spent in times[name, 1]]
                if len(counts) > 1:
                    row[ALL] = [1000 * spent / steps for spent in times[name, counts[-1]]]
                    row[GAIN] = [
                        one / several for one, several in zip(known(row[ONE]), known(row[ALL]), strict=True)
                    ]
        return numbers

    def checks(self, numbers: Numbers) -> list[Check]:
        """What is counted, what a second core gains, and who is faster."""
        steps = {name: by_length(numbers, name, STEPS) for name in MODELS}
        added = {name: {_slope(*pair) for pair in pairwise(row.items())} for name, row in steps.items()}
        longest = max(steps[RNN])
        rnn, transformer = (numbers[f"{name}, length {longest}"] for name in steps)
        gained, gain_words = below(rnn[GAIN], transformer[GAIN]) if GAIN in rnn else (False, "only one core")
        faster, time_words = below(*(row.get(ALL, row[ONE]) for row in (transformer, rnn)))
        return [
            Check(
                "each symbol more adds the same number of sequential steps to the RNN, one or more, and none to "
                "the Transformer",
                len(added[RNN]) == 1 and min(added[RNN]) >= 1 and added[TRANSFORMER] == {0.0},
                ", ".join(
                    f"{name} {mean(row[min(row)]):.0f} to {mean(row[longest]):.0f}" for name, row in steps.items()
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
                if GAIN in rnn
                else "with one core there is nothing to gain",
            ),
            Check(
                f"at length {longest} a step of the Transformer takes less time: the 95 % interval is below 0",
                faster,
                f"{time_words} milliseconds",
                "on few cores time is the amount of arithmetic, whatever waits: as many weights are as much of it "
                "for a symbol, and attention's own comes on top",
            ),
        ]

    def plots(self, numbers: Numbers) -> list[Plot]:
        """Sequential steps, time, and gain, against length."""
        lengths = "length of all strings"
        steps = {name: _line(numbers, name, STEPS) for name in MODELS}
        times = {
            f"{name}, {where}": line
            for name in MODELS
            for measure, where in ((ONE, "one core"), (ALL, "all cores"))
            if (line := _line(numbers, name, measure))
        }
        gains = {name: line for name in MODELS if (line := _line(numbers, name, GAIN))}
        plots = [
            Plot(steps, lengths, "sequential steps of a pass", log_across=True, log_up=True),
            Plot(times, lengths, "milliseconds a training step", log_across=True, log_up=True),
        ]
        return [*plots, Plot(gains, lengths, "times as fast on all cores", log_across=True)] if gains else plots

    def notes(self, numbers: Numbers) -> list[str]:
        """What a few cores can show, and what not."""
        return [
            "Intervals are over rounds on one machine, which others may have used too. Sequential steps are those "
            "of the way forward; the way back has as many.",
            "A few cores can show whether there is work that can be done at the same time. They cannot show how "
            "long a GPU waits: it has thousands of units, and time there follows the sequential steps; here it "
            "follows the amount of arithmetic.",
            "The Transformer's arithmetic grows faster than the length: attention's own part with the square.",
            "Only training is parallel over the target. Written freely, both write symbol by symbol.",
        ]


def by_length(numbers: Numbers, name: str, measure: str) -> dict[int, Values]:
    """Length -> values of one measure of a model."""
    start = f"{name}, length "
    rows = {int(key.removeprefix(start)): row for key, row in numbers.items() if key.startswith(start)}
    return {length: row[measure] for length, row in rows.items() if measure in row}


def _slope(shorter: tuple[int, Values], longer: tuple[int, Values]) -> float:
    return (mean(longer[1]) - mean(shorter[1])) / (longer[0] - shorter[0])


def _line(numbers: Numbers, name: str, measure: str) -> dict[float, list[float]]:
    return {float(length): known(values) for length, values in by_length(numbers, name, measure).items()}
