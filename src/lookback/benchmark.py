"""How fast ours is beside what people use today. On the CPU, in one process.

Ours and theirs work in turn, a round each (A B A B ...), so that both meet the same state of the machine, and
what is compared is the ratio inside each round. A section is a function from `Work` to rows; `SECTIONS` lists
them, and a new one is added there.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from rich.box import SIMPLE
from rich.table import Table

from lookback import config, session
from lookback.attention import Maps
from lookback.config import Config
from lookback.data import Batch, train_batch
from lookback.decode import evaluating
from lookback.launcher import compose
from lookback.machine import machine, peak_memory_mib
from lookback.models.base import Seq2Seq
from lookback.models.rnn import Rnn
from lookback.models.transformer import Transformer
from lookback.peers import BareRnn, TorchTransformer, copy_rnn_weights, copy_weights
from lookback.positions.sinusoidal import Sinusoidal
from lookback.tokens import PAD
from lookback.train import Trainer

Pair = tuple[float, float]
"""The values of one round: ours, theirs."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: what was measured.
        unit: of `ours` and `theirs`.
        against: what `theirs` is.
        ours: median over rounds.
        theirs: median over rounds.
        ratio: median over rounds of ours / theirs.
        ratio_min: the lowest ratio of a round.
        ratio_max: the highest.
        rounds: ours and theirs in each round.
    """

    name: str
    unit: str
    against: str
    ours: float
    theirs: float
    ratio: float
    ratio_min: float
    ratio_max: float
    rounds: list[Pair]

    @classmethod
    def of(cls, name: str, unit: str, against: str, rounds: Sequence[Pair]) -> "Row":
        """Sum up rounds."""
        ours, theirs = (statistics.median(values) for values in zip(*rounds, strict=True))
        ratios = [ours / theirs for ours, theirs in rounds]
        ratio = statistics.median(ratios)
        return cls(name, unit, against, ours, theirs, ratio, min(ratios), max(ratios), list(rounds))


@dataclass(frozen=True)
class Work:
    """What every section is to do.

    Attributes:
        config: sizes, settings and seed.
        rounds: timed rounds; an untimed one comes first.
        steps: batches in a round.
    """

    config: Config
    rounds: int
    steps: int

    def batches(self) -> list[Batch]:
        """The training batches of all rounds, the untimed one first."""
        task, count = self.config.task(), self.steps * (self.rounds + 1)
        return [train_batch(task, self.config.data, self.config.seed, step) for step in range(count)]


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


def alternate(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> list[Pair]:
    """Run both once untimed, then in turn.

    Args:
        ours: does one round of work.
        theirs: does the same work another way.
        rounds: how often each is timed.

    Returns:
        wall-clock seconds of ours and theirs in each round.
    """
    ours()
    theirs()
    return [(_seconds(ours), _seconds(theirs)) for _ in range(rounds)]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


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

    def advance(trainer: Trainer) -> None:
        for _ in range(work.steps):
            trainer.advance(batches.__getitem__)

    seconds = alternate(partial(advance, ours), partial(advance, theirs), work.rounds)
    real = [int((batch.labels != PAD).sum()) for batch in batches]
    tokens = [sum(real[start : start + work.steps]) for start in range(work.steps, len(real), work.steps)]
    speeds = [(count / mine, count / other) for count, (mine, other) in zip(tokens, seconds, strict=True)]
    losses = (ours.drain()[0].loss, theirs.drain()[0].loss)
    return [
        Row.of(names[0], "ms", against, _milliseconds(seconds, work.steps)),
        Row.of(names[1], "per second", against, speeds),
        Row.of(names[2], "nats", against, [losses]),
    ]


def _models(loaded: Config) -> tuple[Seq2Seq, Seq2Seq]:
    """Our model, and nn.Transformer with the same sizes, positions and weights."""
    task, ours = session.build(loaded)
    assert isinstance(ours, Transformer)
    sizes = {key: value for key, value in loaded.raw["model"].items() if key not in ("_target_", "tied")}
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


def _milliseconds(seconds: Sequence[Pair], steps: int) -> list[Pair]:
    """Seconds a round -> milliseconds a step."""
    return [(1000 * ours / steps, 1000 * theirs / steps) for ours, theirs in seconds]


def maps(work: Work) -> list[Row]:
    """What watching costs: our forward pass with attention maps against the same pass without, in eval mode."""
    _, model = session.build(work.config)
    batches = work.batches()[: work.steps]

    def forward(watch: bool) -> None:
        for batch in batches:
            seen: Maps | None = {} if watch else None
            model(batch.source, batch.source_lengths, batch.decoder_input, seen)

    with evaluating(model):
        seconds = alternate(partial(forward, True), partial(forward, False), work.rounds)
    return [Row.of("forward pass with maps", "ms", "without maps", _milliseconds(seconds, work.steps))]


SECTIONS: tuple[Callable[[Work], list[Row]], ...] = (training, recurrent, maps)


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
