"""What is done beside training, in units of what it is done beside: watching, validating, evaluating, starting."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from lookback import learner
from lookback.attention import Maps
from lookback.board import Board
from lookback.by_length import evaluate
from lookback.decode import evaluating
from lookback.evaluate import exact_match, validate, validation_batch
from lookback.observer import Observer
from lookback.races import advance
from lookback.run_folder import keep_weights
from lookback.session import SAMPLES, VALIDATION_STRINGS
from lookback.timing import Row, Work, alternate, beside, milliseconds, seconds
from lookback.train import Trainer

STARTS = {
    "train.py --help": "import sys; sys.argv[1:] = ['--help']; from lookback.experiment import main; main()",
    "import lookback.experiment": "import lookback.experiment",
    "import torch": "import torch",
}
LONG_ROUNDS = 5  # of what takes seconds


def maps(work: Work) -> list[Row]:
    """What watching costs: our forward pass with attention maps against the same pass without, in eval mode."""
    _, model = learner.build(work.config)
    batches = work.batches()[: work.steps]

    def forward(watch: bool) -> None:
        for batch in batches:
            seen: Maps | None = {} if watch else None
            model(batch.source, batch.source_lengths, batch.decoder_input, seen)

    with evaluating(model):
        times = alternate(partial(forward, True), partial(forward, False), rounds=work.rounds)
    return [Row.of("forward pass with maps", "ms", "without maps", milliseconds(beside(times, 1), work.steps))]


def watching(work: Work) -> list[Row]:
    """What a training step takes at the configured cadence of pictures, scores and kept weights, and without any.

    In each round some steps are timed, and then each action once; its share of a step is its time by its cadence.
    """
    loaded = work.config
    task, model = learner.build(loaded)
    trainer, batches = Trainer(model, loaded.train), work.batches()
    lengths = [loaded.data.trained[number % len(loaded.data.trained)] for number in range(VALIDATION_STRINGS)]
    rounds = []
    with TemporaryDirectory() as name, Board(Path(name), 0) as board:
        observer = Observer(task, loaded.board.probe_lengths, validation_batch(task, lengths), Path(name), 0)
        actions: list[tuple[int, Callable[[], object]]] = [
            (loaded.board.alignment_every, lambda: observer.measure(trainer.step, model, board)),
            (loaded.board.images_every, lambda: observer.draw(trainer.step, model, board)),
            (
                loaded.board.snapshots_every,
                lambda: keep_weights(Path(name), trainer.step, {"config": loaded.raw, "model": model.state_dict()}),
            ),
        ]
        for _ in range(work.rounds + 1):
            step = seconds(lambda: advance(trainer, batches, work.steps)) / work.steps
            watched = sum(seconds(action) / cadence for cadence, action in actions if cadence)
            rounds.append((step + watched, step))
    return [Row.of("training step, watched", "ms", "nobody watches", milliseconds(rounds[1:], 1))]


def checking(work: Work) -> list[Row]:
    """One validation, and one evaluation, against a training step: the ratio is how many steps it costs.

    The weights are untrained, so that hardly a row ends by itself and decoding goes on to its cap: more work than
    with a model that has learned.
    """
    work = work.at_most(LONG_ROUNDS, work.steps)
    loaded = work.config
    task, model = learner.build(loaded)
    _, untrained = learner.build(loaded)
    trainer, batches = Trainer(model, loaded.train), work.batches()
    lengths, extra = loaded.data.trained, loaded.evaluate.extra_tokens
    mixed = validation_batch(task, [lengths[number % len(lengths)] for number in range(VALIDATION_STRINGS)])
    longest = validation_batch(task, [lengths[-1]] * VALIDATION_STRINGS)

    def validation() -> None:
        validate(untrained, task, mixed, extra, SAMPLES)
        exact_match(untrained, longest, extra)

    steps = partial(advance, trainer, batches, work.steps)
    times = alternate(steps, validation, partial(evaluate, untrained, task, loaded.evaluate), rounds=work.rounds)
    names = ("validation", "evaluation")
    return [
        Row.of(
            name,
            "ms",
            "one training step",
            [(1000 * found[place], 1000 * found[0] / work.steps) for found in times],
        )
        for place, name in enumerate(names, start=1)
    ]


def starting(work: Work) -> list[Row]:
    """Seconds until Python has done this and ended, each in a process of its own, against importing torch alone."""
    starts = [partial(_start, code) for code in STARTS.values()]
    times = alternate(*starts, rounds=work.at_most(LONG_ROUNDS, 1).rounds)
    last = list(STARTS)[-1]
    return [
        Row.of(name, "s", last, [(found[place], found[-1]) for found in times])
        for place, name in enumerate(list(STARTS)[:-1])
    ]


def _start(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
