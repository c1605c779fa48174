"""How fast ours is beside what people use today. On the CPU, in one process.

Ours and theirs work in turn, a round each (A B A B ...), so that both meet the same state of the machine, and
what is compared is the ratio inside each round. A section is a function from `Work` to rows; `SECTIONS` lists
them, and a new one is added there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from rich.box import SIMPLE
from rich.table import Table

from lookback import config, session
from lookback.attention import Maps
from lookback.board import Board
from lookback.config import Config
from lookback.data import Batch
from lookback.decode import evaluating
from lookback.evaluate import validation_batch
from lookback.launcher import compose
from lookback.machine import machine, peak_memory_mib
from lookback.models.base import Seq2Seq
from lookback.models.rnn import Rnn
from lookback.models.transformer import Transformer
from lookback.observer import Observer
from lookback.peers import BareRnn, TorchTransformer, copy_rnn_weights, copy_weights
from lookback.positions.sinusoidal import Sinusoidal
from lookback.run_folder import keep_weights
from lookback.session import VALIDATION_STRINGS
from lookback.timing import Row, Work, alternate, milliseconds, seconds
from lookback.tokens import PAD
from lookback.train import Trainer


@dataclass(frozen=True)
class Report:
    """What `measure` found.

    Attributes:
        rows: of all sections.
        rounds: timed rounds of each section.
        steps: batches in a round.
        machine: processor, threads that torch uses, and versions.
        peak_memory_mib: the most memory that the process has held so far, everything together, in MiB.
        config: the resolved configuration.
    """

    rows: list[Row]
    rounds: int
    steps: int
    machine: dict[str, str | int]
    peak_memory_mib: float
    config: dict[str, Any]


def training(work: Work) -> list[Row]:
    """Our training step against the same step of nn.Transformer, from the same weights."""
    names = ("training step", "target tokens", "loss of the first step")
    return _race(work, _models(work.config), "nn.Transformer", names)


def recurrent(work: Work) -> list[Row]:
    """The training step of `rnn` against the same step of a bare loop around torch's, from the same weights."""
    names = ("rnn training step", "rnn target tokens", "rnn loss of first step")
    models = _recurrent_models(work.config)
    return _race(work, models, f"bare nn.{type(models[0].encoder).__name__}", names)


def _race(work: Work, models: tuple[Seq2Seq, Seq2Seq], against: str, names: tuple[str, str, str]) -> list[Row]:
    """Train both in turn.

    The step is `Trainer.advance` for both: forward, loss, backward, clipping, AdamW, and counting what was
    right. Both get the same batches, which are made beforehand.

    Args:
        work: what is to be done.
        models: ours and theirs.
        against: what theirs is.
        names: of the rows: milliseconds a step, real target tokens a second, loss of the first step.
    """
    ours, theirs = (Trainer(model, work.config.train) for model in models)
    batches = work.batches()

    times = alternate(
        partial(advance, ours, batches, work.steps), partial(advance, theirs, batches, work.steps), work.rounds
    )
    real = [int((batch.labels != PAD).sum()) for batch in batches]
    tokens = [sum(real[start : start + work.steps]) for start in range(work.steps, len(real), work.steps)]
    speeds = [(count / mine, count / other) for count, (mine, other) in zip(tokens, times, strict=True)]
    losses = (ours.drain()[0].loss, theirs.drain()[0].loss)
    return [
        Row.of(names[0], "ms", against, milliseconds(times, work.steps)),
        Row.of(names[1], "per second", against, speeds),
        Row.of(names[2], "nats", against, [losses]),
    ]


def advance(trainer: Trainer, batches: Sequence[Batch], steps: int) -> None:
    """Train for some steps, each on the batch of its number."""
    for _ in range(steps):
        trainer.advance(batches.__getitem__)


def _models(loaded: Config) -> tuple[Seq2Seq, Seq2Seq]:
    """Our model, and nn.Transformer with the same sizes, positions and weights."""
    task, ours = session.build(loaded)
    assert isinstance(ours, Transformer)
    sizes = {
        key: value for key, value in loaded.raw["model"].items() if key not in ("_target_", "tied", "log_length")
    }
    sizes["positions"] = partial(Sinusoidal, base=sizes["positions"]["base"])
    theirs = TorchTransformer(len(task.source_vocabulary), len(task.target_vocabulary), **sizes)
    copy_weights(ours, theirs)
    return ours, cast(Seq2Seq, theirs)  # a Trainer asks no more of it than to be called


def _recurrent_models(loaded: Config) -> tuple[Seq2Seq, Seq2Seq]:
    """`rnn` with the GRU, in place of the model of `loaded`, and its bare peer."""
    node = compose("train", ["model=rnn", "model.cell=gru"])["model"]
    task, ours = session.build(config.build({**loaded.raw, "model": node}))
    assert isinstance(ours, Rnn)
    symbols = len(task.source_vocabulary), len(task.target_vocabulary)
    theirs = BareRnn(*symbols, **{name: node[name] for name in ("d_model", "num_layers", "cell")})
    copy_rnn_weights(ours, theirs)
    return ours, cast(Seq2Seq, theirs)


def maps(work: Work) -> list[Row]:
    """What watching costs: our forward pass with attention maps against the same pass without, in eval mode."""
    _, model = session.build(work.config)
    batches = work.batches()[: work.steps]

    def forward(watch: bool) -> None:
        for batch in batches:
            seen: Maps | None = {} if watch else None
            model(batch.source, batch.source_lengths, batch.decoder_input, seen)

    with evaluating(model):
        times = alternate(partial(forward, True), partial(forward, False), work.rounds)
    return [Row.of("forward pass with maps", "ms", "without maps", milliseconds(times, work.steps))]


def watching(work: Work) -> list[Row]:
    """What a training step takes at the configured cadence of pictures, scores and kept weights, and without any.

    In each round some steps are timed, and then each action once; its share of a step is its time by its cadence.
    """
    loaded = work.config
    task, model = session.build(loaded)
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
                lambda: keep_weights(Path(name), trainer.step, loaded.raw, model),
            ),
        ]
        for _ in range(work.rounds + 1):
            step = seconds(lambda: advance(trainer, batches, work.steps)) / work.steps
            watched = sum(seconds(action) / cadence for cadence, action in actions if cadence)
            rounds.append((step + watched, step))
    return [Row.of("training step, watched", "ms", "nobody watches", milliseconds(rounds[1:], 1))]


SECTIONS: tuple[Callable[[Work], list[Row]], ...] = (training, recurrent, maps, watching)


def measure(rounds: int, steps: int, overrides: Sequence[str] = ()) -> Report:
    """Run all sections at the sizes of configs/train.yaml.

    Args:
        rounds: timed rounds, at least 1.
        steps: batches in a round, at least 1.
        overrides: changes of the configuration, such as `data.batch_size=32`. Those of the model concern the
            Transformer, whose positions stay sinusoidal; `recurrent` takes the others and an unchanged `rnn`.

    Raises:
        ConfigError: naming every problem with the overrides.
    """
    loaded = config.build(compose("train", ["train.device=cpu", *overrides]))
    work = Work(loaded, rounds, steps)
    rows = [row for section in SECTIONS for row in section(work)]
    return Report(rows, rounds, steps, machine(), peak_memory_mib(), loaded.raw)


def table(report: Report) -> Table:
    """A report as a person reads it."""
    shown = Table(title="Ours beside its peers", box=SIMPLE, caption_justify="left", title_justify="left")
    shown.add_column("measured")
    for heading in ("ours", "theirs", "ratio", "lowest", "highest"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in report.rows:
        ratios = [f"{ratio:.3f}" for ratio in (row.ratio, row.ratio_min, row.ratio_max)]
        name = f"{row.name}, {row.unit}\n  theirs: {row.against}"
        shown.add_row(name, _short(row.ours), _short(row.theirs), *ratios)
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    shown.caption = (
        f"medians of {report.rounds} rounds of {report.steps} steps; ratio = ours / theirs in a round\n"
        f"{facts}\npeak memory of the process {report.peak_memory_mib:,.0f} MiB"
    )
    return shown


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}"
