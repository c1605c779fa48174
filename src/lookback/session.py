"""One training run and its folder: training, validating, saving, resuming, evaluating, summing up."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lookback import checkpoint, failures, files, run_folder, terminal
from lookback.board import Board
from lookback.by_length import LengthScore, few
from lookback.config import Config, upgraded
from lookback.console import SteadyConsole
from lookback.data import batch_of, fingerprint
from lookback.evaluate import Validation, exact_match, validate
from lookback.learner import Learner, doubts
from lookback.machine import code_version, differences, forget_peak_memory
from lookback.observer import Finding, Observer
from lookback.processes import ALONE, Processes
from lookback.schema import ConfigError, Problem
from lookback.summary import contents as summary_of
from lookback.train import NonFiniteLossError

VALIDATION_STRINGS = 128  # of all trained lengths; and as many of the longest
SAMPLES = 8
KEPT = ("seed", "task", "model", "data")


def other_run(stored: object, raw: Mapping[str, Any]) -> list[str]:
    """In which keys a stored configuration differs that a run always keeps; none if it is of the same run."""
    found = upgraded(stored) if isinstance(stored, Mapping) else {}
    return [key for key in KEPT if found.get(key) != raw[key]]


class Run:
    """One training run and its folder.

    Args:
        loaded: the configuration.
        folder: where everything goes.
        resume: go on from the folder's last checkpoint.
        quiet: print nothing.
        processes: that learn together; this one is their first.
    """

    def __init__(
        self, loaded: Config, folder: Path, resume: bool, quiet: bool = False, processes: Processes = ALONE
    ) -> None:
        forget_peak_memory()
        self.config = loaded
        self.folder = folder
        self.console = SteadyConsole(highlight=False, quiet=quiet)
        self.learner = Learner(loaded, processes)
        self.task, self.model, self.trainer = self.learner.task, self.learner.model, self.learner.trainer
        self.best: Validation | None = None
        self.best_step = 0
        self.changed = False
        if resume:
            self._load_last()
        mixed, longest = self.task.validation_pairs(loaded.data.trained, VALIDATION_STRINGS)
        self.validation = batch_of(mixed).to(self.trainer.device)
        self.longest = self.validation if longest is mixed else batch_of(longest).to(self.trainer.device)
        start = self.trainer.step
        seen = mixed if len(mixed) <= VALIDATION_STRINGS else mixed[:: -(-len(mixed) // VALIDATION_STRINGS)]
        watched = batch_of(seen).to(self.trainer.device).parts()[0]  # of maps only some are kept in memory
        self.observer = Observer(self.task, loaded.board.probe_lengths, watched, folder, start, self._tell)
        run_folder.forget_later(folder, start, self._tell)

    def train(self, board: Board, stop: Callable[[], bool]) -> bool:
        """Train to the last step, or until told to stop, and say whether; either way `last` is written."""
        steps = self.config.train.updates
        self.board = board
        if self.trainer.step == 0:
            self._save_last()  # so that there is always something to resume from
            if self.config.board.snapshots_every:
                self._keep_weights()
        with terminal.TrainingProgress(self.console, steps, self.trainer.step) as self.progress:
            actions = [
                (self.config.board.scalars_every, self._log),
                (self.config.board.alignment_every, self._measure),
                (self.config.board.images_every, self._log_maps),
                (self.config.board.snapshots_every, self._keep_weights),
                (self.config.train.validate_every, self._validate),
                (self.config.train.save_every, self._save_last),
            ]
            stopped = self.learner.learn(actions, stop, lambda: self.waited)
            if self.trainer.step == steps and self.best is None:
                self._validate()  # the best weights were lost after the last validation
            if self.trainer.step < steps:
                self._save_last()
                with self._watching():
                    head = self.observer.find(self.model, self.trainer.step).head
                    self.observer.leave(self.trainer.step, self.model, board, head)
        return stopped

    @property
    def waited(self) -> bool:
        """Whether so many validations in a row were no better that training stops early."""
        patience = self.config.train.patience
        if patience is None or self.best is None:
            return False
        return self.trainer.step - self.best_step >= patience * self.config.train.validate_every

    def finish(self, board: Board, stop: Callable[[], bool]) -> tuple[list[LengthScore], Finding] | None:
        """Evaluate the best weights on held-out strings, and leave all results in the folder; none if stopped."""
        path = run_folder.checkpoint_path(self.folder, "best")
        checkpoint.load_weights(self.model, run_folder.load_best(self.folder).get("model"), path)
        scores = self.learner.evaluate(stop)
        if scores is None:
            return None
        for row in (scores[number] for number in few(range(len(scores)))):
            values = {"exact_match": row.exact_match, "token_accuracy": row.token_accuracy}
            measured = {f"length/{row.length}/{name}": v for name, v in values.items() if v is not None}
            board.scalars(self.trainer.step, measured)
        self.summarise("running", scores=scores)  # first of all: nothing below may cost the results
        finding = Finding({}, None, None)
        with self._watching():
            finding = self.observer.find(self.model, self.best_step)
        with self._watching():
            self.observer.leave(self.trainer.step, self.model, board, finding.head)
        with self._watching():
            board.failures(self.trainer.step, failures.leave(self.folder / "failures", scores))
        board.flush()
        self.summarise("finished", scores=scores, finding=finding)  # last of all: there is nothing to go on with
        return scores, finding

    def summarise(
        self,
        status: str,
        *,
        reason: str = "",
        scores: list[LengthScore] | None = None,
        finding: Finding | None = None,
    ) -> None:
        """Write summary.json; README explains each entry."""
        best = (self.best_step, self.best)
        rows, found = scores or [], finding or Finding({}, None, None)
        summary = {
            "status": status,
            "reason": reason,
            **summary_of(self.config, self.task, self.trainer, best, rows, found),
            "data_digest": self._data_digest,
            "changed": self.changed,
        }
        text = json.dumps(summary, indent=2) + "\n"
        files.write_whole(self.folder / "summary.json", text.encode())

    @cached_property
    def _data_digest(self) -> str:
        loaded = self.config
        return fingerprint(self.task, loaded.data, loaded.seed, loaded.evaluate.lengths, loaded.evaluate.split)

    def headline(self) -> str:
        """What is about to be trained."""
        names = [run_folder.class_name(self.config.raw[name]) for name in ("task", "model")]
        numbers = sum(weights.numel() for weights in self.model.parameters())
        done, last = self.trainer.step, self.config.train.updates
        steps = f"steps {done + 1} to {last} of {self.config.data.batch_size} strings"
        if done == last:
            steps = f"all {last} steps are done"
        count = self.learner.processes.count
        where = f"{self.trainer.device.type}, {torch.get_num_threads()} threads"
        where += f" in each of {count} processes" if count > 1 else ""
        first = f"{names[0]}: {names[1]}, {numbers:,} parameters"
        return "\n".join(
            [
                first,
                *self.task.notes(self.config.data.trained),
                *doubts(self.task, self.config),
                f"{steps}, {where}",
            ]
        )

    def _log(self) -> None:
        records = self.trainer.drain()
        for record in records:
            values = {
                "train/loss": record.loss,
                "train/token_accuracy": record.token_accuracy,
                "train/learning_rate": record.learning_rate,
                "train/tokens_per_second": record.tokens_per_second,
            }
            self.board.scalars(record.step, values)
        if records:
            self.progress.update(records[-1])

    def _log_maps(self) -> None:
        with self._watching():
            self.observer.draw(self.trainer.step, self.model, self.board)

    def _measure(self) -> None:
        with self._watching():
            self.observer.measure(self.trainer.step, self.model, self.board)

    def _keep_weights(self) -> None:
        with self._watching():
            kept = {"config": self.config.raw, "model": self.model.state_dict(), "task": self.task.state()}
            run_folder.keep_weights(self.folder, self.trainer.step, kept, self._tell)

    def _tell(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Whatever goes wrong with what only shows a training must never end it."""
        try:
            yield
        except Exception as error:
            self._tell(f"not shown at step {self.trainer.step}: {error}")

    def _validate(self) -> None:
        self._log()
        extra = self.config.evaluate.extra_tokens
        result, examples = validate(self.model, self.task, self.validation, extra, SAMPLES)
        step = self.trainer.step
        better = result.better_than(self.best)
        longest = result.exact_match
        if self.longest is not self.validation:
            longest = exact_match(self.model, self.longest, extra)
        self.board.scalars(step, {f"val/{name}": value for name, value in asdict(result).items()})
        self.board.scalars(step, {"val/longest_exact_match": longest, "train/seconds": self.trainer.seconds})
        self.board.samples(step, examples)
        self.progress.validated(step, result, better)
        if better:
            self.best, self.best_step = result, step
            checkpoint.save(run_folder.checkpoint_path(self.folder, "best"), self._content())

    def _save_last(self) -> None:
        self._log()
        run_folder.save_last(self.folder, self._content())

    def _content(self) -> dict[str, Any]:
        """What a checkpoint holds. The board is flushed first: no step is then in it and missing there."""
        if not all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
            raise NonFiniteLossError(f"weights are not finite at step {self.trainer.step}")
        self.board.flush()
        return {
            "config": self.config.raw,
            "model": self.model.state_dict(),
            "trainer": self.trainer.state_dict(),
            "code_version": code_version(),
            "made_by": self.learner.made_by,
            "task": self.task.state(),
            "changed": self.changed,
            "best": {"step": self.best_step, **asdict(self.best)} if self.best else None,
        }

    def _load_last(self) -> None:
        path, content = run_folder.load_last(self.folder, self._tell)
        self._check_same_run(content.get("config"))
        if content.get("task", {}) != self.task.state():
            raise ConfigError([Problem("task", "its files are not what they were when this run began")])
        same = upgraded(content["config"]) == self.config.raw and content.get("code_version") == code_version()
        other = differences(content.get("made_by"), self.learner.made_by)
        if other:
            self._tell(f"the last bits may not be those of a run that was never stopped: {other}")
        self.changed = not same or bool(other) or bool(content.get("changed"))
        rule = "lacks what resuming needs"
        with checkpoint.reading(path, rule):
            checkpoint.load_weights(self.model, content["model"], path)
            self.trainer.load_state_dict(content["trainer"])
        best_path = run_folder.checkpoint_path(self.folder, "best")
        if best_path.exists():  # what it says of itself counts: it may be younger than `last`
            with checkpoint.reading(best_path, rule):
                best = dict(run_folder.load_best(self.folder)["best"])
                self.best_step = best.pop("step")
                self.best = Validation(**best)
        elif content.get("best"):
            self._tell(f"{best_path} is gone: which weights are best is seen anew from step {self.trainer.step} on")

    def _check_same_run(self, trained: object) -> None:
        """Refuse to go on with weights that were trained as something else than config.yaml says."""
        rule = f"differs from that of the checkpoint; a run keeps its {', '.join(KEPT[:-1])} and {KEPT[-1]}"
        keys = other_run(trained, self.config.raw)
        if keys:
            raise ConfigError(Problem(key, rule, self.config.raw[key]) for key in keys)
