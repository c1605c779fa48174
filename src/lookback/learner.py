"""A model that learns: the part of a training that all processes have in common, whoever writes and prints."""

from collections.abc import Callable, Sequence

import torch

from lookback import fonts
from lookback.by_length import LengthScore, evaluate
from lookback.config import Config
from lookback.data import Batch, train_batch
from lookback.machine import bits_depend_on
from lookback.models.base import Seq2Seq
from lookback.pair_file import counted
from lookback.processes import ALONE, Processes
from lookback.schema import ConfigError, Problem
from lookback.tasks.base import Task
from lookback.train import Trainer, choose_device, fit, seed_dropout

FEW_STEPS = 200
SHOWN = 8  # letters


def build(loaded: Config) -> tuple[Task, Seq2Seq]:
    """Make the task and the model of a configuration, the weights drawn from its seed."""
    torch.manual_seed(loaded.seed)
    task = loaded.task()
    return task, loaded.model(len(task.source_vocabulary), len(task.target_vocabulary))


def doubts(task: Task, loaded: Config) -> list[str]:
    """What makes one doubt that a training on pairs of a person's own, or its pictures, will do; a line each."""
    found, train, asked = [], loaded.train, loaded.evaluate
    if task.listed and asked.lengths is not None:
        there = task.test_pairs(asked.lengths, lambda length: 1, asked.split)
        missing = ", ".join(str(length) for length in asked.lengths if length not in there)
        found += [f"no pair to test on has a source of {missing} symbols (evaluate.lengths)"] if missing else []
    if task.listed and train.updates < FEW_STEPS:
        more = "raise train.epochs, or lower data.batch_size"
        found.append(f"{counted(train.updates, 'step')} may be too few, some hundred are usual: {more}")
    if task.listed and train.patience and train.patience * train.validate_every >= train.updates:
        every = f"validations come every {train.validate_every} steps (train.validate_every)"
        found.append(f"train.patience={train.patience} cannot stop a training of {train.updates} steps: {every}")
    boxes = fonts.unshown([*task.source_vocabulary.symbols, *task.target_vocabulary.symbols])
    if boxes:
        what = " ".join(boxes[:SHOWN]) + (" and others" if len(boxes) > SHOWN else "")
        found.append(f"no font here has {what}: pictures show boxes there ({fonts.ADVICE})")
    return found


class Learner:
    """A task, a model and its trainer.

    Args:
        loaded: the configuration.
        processes: that learn together.
    """

    def __init__(self, loaded: Config, processes: Processes = ALONE) -> None:
        self.config = loaded
        self.processes = processes
        self.task, model = build(loaded)
        kind = torch.float64 if loaded.train.precision == "float64" else torch.float32
        self.model = model.to(choose_device(loaded.train.device, processes.device_index), kind)
        self.trainer = Trainer(self.model, loaded.train, processes)

    @property
    def trained(self) -> range:
        """The lengths of the sources that it learns from."""
        shortest, longest = self.task.learned_lengths(self.config.data.trained)
        return range(shortest, longest + 1)

    @property
    def made_by(self) -> dict[str, str | int]:
        """What its last bits depend on besides code and configuration."""
        return bits_depend_on(self.trainer.device.type, self.processes.count)

    def agree(self) -> None:
        """Take weights, optimizer and step of the first process; it may have read them from a checkpoint."""
        if self.processes.count == 1:
            return
        ours = {"model": self.model.state_dict(), "trainer": self.trainer.state_dict(), "task": self.task.state()}
        state = self.processes.share(ours)
        if state["task"] != ours["task"]:
            raise ConfigError([Problem("task", "its files are not those of the first process")])
        if not self.processes.first:
            self.model.load_state_dict(state["model"])
            self.trainer.load_state_dict(state["trainer"])

    def learn(
        self,
        actions: Sequence[tuple[int, Callable[[], object]]],
        stop: Callable[[], bool],
        waited: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train to the last step, or until a process is told to stop or has waited long enough for a better model.

        Args:
            actions: as in `fit`.
            stop: asked after each step.
            waited: asked as well, and before the first step too.

        Returns:
            whether one was told to stop.
        """
        if not self.processes.any(waited()):
            fit(self.trainer, self._batch, actions, lambda: self.processes.any(stop() or waited()))
        return self.processes.any(stop())

    def evaluate(self, stop: Callable[[], bool]) -> list[LengthScore] | None:
        """Score the weights of the first process, each string by one of all; None if told to stop."""
        if self.processes.count > 1:
            self.model.load_state_dict(self.processes.share(self.model.state_dict()))
        scores = evaluate(self.model, self.task, self.config.evaluate, stop, self.processes)
        return None if self.processes.any(stop()) else scores

    def _batch(self, step: int) -> Batch:
        seed_dropout(self.config.seed, step, self.processes.rank)
        return train_batch(self.task, self.config.data, self.config.seed, step)
