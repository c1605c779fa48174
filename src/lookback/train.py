"""Training: one step, and the loop around it."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lookback.data import Batch
from lookback.flat import FlatWeights, flattened
from lookback.metrics import score, sequence_loss
from lookback.models.base import Packs, Seq2Seq
from lookback.packing import pack
from lookback.processes import ALONE, Processes
from lookback.rules import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from lookback.tokens import PAD

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained.

    Attributes:
        steps: number of updates; None where epochs count.
        epochs: passes over a list of pairs, in the place of steps; `config.build` makes steps of them.
        learning_rate: the highest rate, reached after warm-up.
        warmup_steps: updates over which the rate rises in a line from 0.
        weight_decay: of AdamW, on all parameters alike.
        beta2: decay of AdamW's mean of squared gradients.
        clip_norm: gradients are scaled down to this norm.
        label_smoothing: share of the target's mass spread over all symbols.
        patience: validations in a row without a better one, after which training stops; None = never.
        validate_every: steps between validations; the best checkpoint is chosen there.
        save_every: steps between writings of the last checkpoint; Ctrl-C writes one as well.
        device: auto takes CUDA where there is one.
        precision: of autocast; float32 = off; float64 = off, and all weights and numbers in it.
    """

    steps: PositiveInt | None
    epochs: PositiveInt | None
    learning_rate: PositiveFloat
    warmup_steps: NonNegativeInt
    weight_decay: NonNegativeFloat
    beta2: Fraction
    clip_norm: PositiveFloat
    label_smoothing: Fraction
    patience: PositiveInt | None
    validate_every: PositiveInt
    save_every: PositiveInt
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["float64", "float32", "bfloat16", "float16"]

    @property
    def updates(self) -> int:
        """Number of updates.

        Raises:
            ValueError: while epochs are given, and nobody has said how many steps they have.
        """
        if self.steps is None:
            raise ValueError(f"steps must be given, but only epochs are: {self.epochs}")
        return self.steps


class NonFiniteLossError(ArithmeticError):
    """The loss became infinite or not a number."""


@dataclass(frozen=True)
class StepRecord:
    """What one update reports; `step` is the number of updates done, itself included."""

    step: int
    loss: float
    token_accuracy: float
    learning_rate: float
    tokens_per_second: float


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The rate of update number `step`, counted from 0: a line up, then half a cosine down to 0."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    share = (step - settings.warmup_steps) / max(1, settings.updates - settings.warmup_steps)
    return settings.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


def choose_device(name: str, index: int = 0) -> torch.device:
    """The device of this name; `auto` is CUDA where there is one, else the CPU. `index` is that of the GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name, index) if name == "cuda" else torch.device(name)


def seed_dropout(seed: int, step: int, rank: int) -> None:
    """Let what a process beside the first drops depend on (seed, step, rank) alone: no checkpoint keeps it."""
    if rank:
        torch.manual_seed(int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0]) >> 1)


class Trainer:
    """A model, its optimizer, and how far they have come.

    Args:
        model: on its device.
        settings: see `TrainSettings`.
        processes: that learn together, each from its share of each batch.

    Attributes:
        step: updates done.
        seconds: spent in updates and in making their batches; validation and pictures do not count.
        tokens: real target tokens learned from.
    """

    def __init__(self, model: Seq2Seq, settings: TrainSettings, processes: Processes = ALONE) -> None:
        self.processes = processes
        self.model = model
        self.settings = settings
        self.device = next(model.parameters()).device
        self.step = 0
        self.seconds = 0.0
        self.tokens = 0
        self.weights = FlatWeights(model)
        self.optimizer = torch.optim.AdamW(
            [self.weights.vector],
            lr=settings.learning_rate,
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.precision == "float16")
        self._pending: list[tuple[int, Tensor, Tensor, Tensor, float]] = []
        self._drained_seconds = 0.0

    def advance(self, batch_at: Callable[[int], Batch]) -> None:
        """Make the batch of this step and update the weights once, by teacher forcing."""
        started = time.perf_counter()
        batch = batch_at(self.step)
        rate = learning_rate(self.settings, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        loss, hits, tokens = self._learn(batch) if self.processes.count == 1 else self._learn_share(batch)
        self.weights.backward(self.scaler.scale(loss))
        assert self.weights.vector.grad is not None
        self.processes.sum(self.weights.vector.grad)
        self.scaler.unscale_(self.optimizer)
        self.weights.clip(self.settings.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        self._pending.append((self.step, loss.detach(), hits, tokens, rate))
        self.seconds += time.perf_counter() - started

    def _learn(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The mean loss of a batch, and how many of how many real tokens are right."""
        with self._autocast():
            logits, labels = self._predict(batch)
        loss = sequence_loss(logits, labels, self.settings.label_smoothing)
        result = score(logits.detach().argmax(dim=-1), labels)
        return loss, result.hits.sum(), result.tokens.sum()

    def _learn_share(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The same of this process's rows, the loss weighted so that all together are the mean of the batch."""
        share = batch.share(self.processes.rank, self.processes.count)
        if not len(share.source):
            nothing = torch.zeros((), device=self.device, dtype=torch.int64)
            return self.weights.nothing(), nothing, nothing
        loss, hits, tokens = self._learn(share)
        return loss * (int((share.labels != PAD).sum()) / int((batch.labels != PAD).sum())), hits, tokens

    def _predict(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logits of a batch by teacher forcing, and their labels."""
        if isinstance(self.model, Packs):
            packed = pack(batch.source, batch.source_lengths, batch.target).to(self.device)
            return self.model.packed(packed), packed.labels
        batch = batch.to(self.device)
        return self.model(batch.source, batch.source_lengths, batch.decoder_input), batch.labels

    def drain(self) -> list[StepRecord]:
        """Report the updates since the last call. Losses stay on the device until then.

        Raises:
            NonFiniteLossError: naming the first step whose loss is not finite.
        """
        if not self._pending:
            return []
        steps, losses, hits, tokens, rates = zip(*self._pending, strict=True)
        self._pending = []
        started = time.perf_counter()
        sums = torch.stack([torch.stack(losses).double(), torch.stack(hits).double(), torch.stack(tokens).double()])
        all_losses, all_hits, all_tokens = self.processes.sum(sums)
        counts = [int(count) for count in all_tokens.tolist()]  # waits for the device, if it works on its own
        self.seconds += time.perf_counter() - started
        speed = sum(counts) / max(self.seconds - self._drained_seconds, 1e-9)
        self._drained_seconds = self.seconds
        self.tokens += sum(counts)
        rows = zip(steps, all_losses.tolist(), (all_hits / all_tokens).tolist(), rates, strict=True)
        records = [StepRecord(*row, speed) for row in rows]
        for record in records:
            if not math.isfinite(record.loss):
                rule = f"loss is not finite at step {record.step}: {record.loss}"
                raise NonFiniteLossError(f"{rule} (train.learning_rate is then {record.learning_rate:.3g})")
        return records

    def state_dict(self) -> dict[str, Any]:
        """All that continuing needs, the weights apart."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random_state": torch.get_rng_state(),
            "cuda_random_state": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; random states stay on the CPU, the rest goes to the model's device."""
        self.step = state["step"]
        self.seconds = self._drained_seconds = state["seconds"]
        self.tokens = state["tokens"]
        options = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(flattened(state["optimizer"]))
        for group, option in zip(self.optimizer.param_groups, options, strict=True):
            group.update(option)  # the moments are the checkpoint's, the settings ours
        if self.scaler.is_enabled() and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random_state"])
        if self.device.type == "cuda" and state["cuda_random_state"]:
            torch.cuda.set_rng_state_all(state["cuda_random_state"])

    def _autocast(self) -> torch.autocast:
        precision = self.settings.precision
        return torch.autocast(self.device.type, HALVES.get(precision), enabled=precision in HALVES)


def fit(
    trainer: Trainer,
    batch_at: Callable[[int], Batch],
    actions: Sequence[tuple[int, Callable[[], object]]],
    stop: Callable[[], bool],
) -> None:
    """Train until the last step, or until `stop` says so after a step.

    Args:
        trainer: where to go on from.
        batch_at: the batch of each step.
        actions: pairs of a cadence in steps (0 = never) and what to do then, and after the last step, in order.
        stop: asked after each step.
    """
    last = trainer.settings.updates
    while trainer.step < last:
        trainer.advance(batch_at)
        for cadence, action in actions:
            if cadence and (trainer.step % cadence == 0 or trainer.step == last):
                action()
        if stop():
            return
