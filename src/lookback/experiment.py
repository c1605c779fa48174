"""The hall: from a checked configuration to a trained, evaluated run folder."""

import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lookback import checkpoint, command_line, config, files, heatmap, terminal
from lookback.board import Board
from lookback.config import Config
from lookback.follow import follow
from lookback.machine import code_version
from lookback.models.base import Seq2Seq
from lookback.processes import ALONE, Processes, joined
from lookback.results import read_summary
from lookback.run_folder import checkpoint_path, has_begun
from lookback.schema import ConfigError, Problem
from lookback.session import Run
from lookback.stop import SIGNALS, Stop
from lookback.tasks.base import Task


def main() -> int:
    """The command `python scripts/train.py`, in one process or in each of those that torchrun has started."""
    with joined() as processes:
        if processes.first:
            one, several = partial(run, processes=processes), partial(work, processes=processes)
            code = command_line.launch(one, "train", work=several)
        else:
            code = command_line.reported(partial(follow, processes))
    return processes.end(code)


def load(folder: Path, which: str | int = "best") -> tuple[Task, Seq2Seq]:
    """Read a run back, ready to predict, wherever it was trained.

    Args:
        folder: of the run.
        which: `best`, `last`, or a step whose weights were kept.

    Raises:
        CheckpointError: if there is none, or none that can be read.
    """
    path = checkpoint_path(folder, which)
    if which == "best" and not path.exists() and has_begun(folder):
        rule = "has no best weights yet, because its first validation is still to come"
        raise checkpoint.CheckpointError(f"{folder}: the run {rule}")
    content = checkpoint.load(path)
    with checkpoint.reading(path, "lacks what predicting needs"), torch.random.fork_rng(devices=[]):
        task, make_model = config.build_parts(content["config"], content.get("task"))
        model = make_model()  # weights are drawn first and then replaced
        checkpoint.load_weights(model, content["model"], path)
    return task, model.eval()


def run(
    loaded: Config,
    folder: Path,
    resume: bool,
    quiet: bool = False,
    stop: Stop | None = None,
    processes: Processes = ALONE,
) -> int:
    """Train, evaluate and report one configuration.

    Args:
        loaded: what to train.
        folder: the run folder, made if it is not there.
        resume: go on from what is there.
        quiet: print nothing.
        stop: asked after each step; a new one listens to signals when left out.
        processes: that learn together; this one is their first.

    Returns:
        the exit code: 0, or 128 + the signal that stopped it.

    Raises:
        NonFiniteLossError: if the loss or the weights stop being finite; the last good checkpoint stays.
        ConfigError: if the folder holds another run.
    """
    if not resume and holds_run(folder):
        rule = "holds a run already; go on with resume=FOLDER, or choose another folder"
        raise ConfigError([Problem("hydra.run.dir", rule, folder)])
    if not resume:
        folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder):
        return _run(Run(loaded, folder, resume, quiet, processes), resume, stop or Stop())


def work(flag: Path, quiet: bool, raw: dict[str, Any], folder: Path, processes: Processes = ALONE) -> int:
    """One job of a sweep or comparison, wherever a launcher runs it; what is in its folder is gone on with.

    Args:
        flag: a file that says stop.
        quiet: print nothing.
        raw: the composed configuration.
        folder: the run folder.
        processes: that learn together.

    Returns:
        as `run`.

    Raises:
        ConfigError: if another run is there, or one that other code began.
    """
    if flag.exists():
        return SIGNALS + Stop.DEFAULT
    loaded = config.build(raw)
    resume = has_begun(folder)
    if resume and config.read(folder / "config.yaml") != loaded.raw:
        raise ConfigError([Problem("hydra.run.dir", "holds a run of another configuration", folder)])
    if resume and read_summary(folder).get("code_version") != code_version():
        raise ConfigError([Problem("hydra.run.dir", "holds a run that other code began", folder)])
    code = run(loaded, folder, resume, quiet, Stop(flag), processes)
    if code > SIGNALS:
        flag.touch()
    return code


def holds_run(folder: Path) -> bool:
    """Whether there is something in a run folder that must not be lost."""
    return has_begun(folder) or read_summary(folder).get("status") == "finished"


def _run(this: Run, resume: bool, stop: Stop) -> int:
    loaded, folder = this.config, this.folder
    counted = "steps" if loaded.train.epochs is None else "epochs"
    if this.trainer.step > loaded.train.updates:
        asked = f"must not be fewer than the {this.trainer.step} steps that the run has done"
        asked += f", and is {loaded.train.updates}" if counted == "epochs" else ""
        raise ConfigError([Problem(f"train.{counted}", asked, loaded.raw["train"][counted])])
    if (
        resume
        and read_summary(folder).get("status") == "finished"
        and config.read(folder / "config.yaml") == loaded.raw
    ):
        note = f"add train.{counted}=TOTAL to train it further, along a new curve of the learning rate"
        this.console.print(f"{terminal.shown_path(folder)} has finished already;\n{note}", markup=False)
        return 0
    with this.learner.processes.leading(loaded.raw), stop, Board(folder, this.trainer.step) as board:
        this.learner.agree()
        loaded.save(folder / "config.yaml")
        this.summarise("running")
        terminal.announce(this.console, folder, this.headline())
        try:
            found = None if this.train(board, stop) else this.finish(board, stop)
        except BaseException as error:
            how = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            with suppress(OSError):  # the first error is what counts
                this.summarise(how, reason=f"{type(error).__name__}: {error}")
            raise
    if found is None:
        number = stop.signal or stop.DEFAULT  # the first is that of another process
        this.summarise("interrupted", reason=signal.Signals(number).name)
        terminal.report_stop(this.console, this.trainer.step, folder)
        return SIGNALS + number
    scores, finding = found
    if this.trainer.step < loaded.train.updates:
        this.console.print(f"stopped early: no validation was better than that of step {this.best_step}")
    listed = this.task.tested(loaded.evaluate.split) if this.task.listed else None
    terminal.report(this.console, scores, this.learner.trained, folder, listed)
    if finding.head is not None:
        probe = this.observer.probes[-1]
        this.console.print(f"\n{finding.says()}", soft_wrap=True, markup=False)
        heatmap.show(this.console, probe.panel(finding.head.place), finding.head.of(probe.watch(this.model)))
    terminal.report_folder(this.console, folder)
    return 0
