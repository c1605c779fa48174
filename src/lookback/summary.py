"""What summary.json says of a run; README explains each entry."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lookback.by_length import LengthScore, beyond, entries, overall
from lookback.config import Config, digest
from lookback.evaluate import Validation
from lookback.machine import code_version, machine, peak_memory_mib
from lookback.observer import Finding
from lookback.run_folder import class_name
from lookback.tasks.base import Task
from lookback.train import Trainer


def contents(
    config: Config,
    task: Task,
    trainer: Trainer,
    best: tuple[int, Validation | None],
    scores: Sequence[LengthScore],
    finding: Finding,
) -> dict[str, Any]:
    """All entries but those on how the run goes.

    Args:
        config: of the run.
        task: of the run.
        trainer: with the model.
        best: the step of the best weights and how they did; 0 and None while there are none.
        scores: by length; empty before the end.
        finding: how the heads look.
    """
    model, device = trainer.model, trainer.device
    learned = task.learned_lengths(config.data.trained)
    step, validation = best
    return {
        **{name: class_name(config.raw[name]) for name in ("task", "model")},
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": config.seed,
        "steps": trainer.step,
        "best_step": step,
        "tokens": trainer.tokens,
        "sequential_steps": model.sequential_steps(*task.places(config.data.max_length)),
        "state_numbers": model.state_numbers,
        "train_seconds": trainer.seconds,
        "tokens_per_second": trainer.tokens / max(trainer.seconds, 1e-9),
        "peak_memory_mib": peak_memory_mib(),
        "split": task.tested(config.evaluate.split),
        **({"pairs_digest": task.digest} if task.listed else {}),
        **({"trained_lengths": list(learned)} if task.listed else {}),
        **({"overall": overall(scores)} if task.listed and scores else {}),
        "beyond": beyond(scores, learned[1]),
        **entries(scores),
        "code_version": code_version(),
        "config_digest": digest(config.raw),
        **finding.summary(),
        "machine": {**machine(), "device": device.type, "processes": trainer.processes.count},
        "validation": asdict(validation) if validation else {},
    }
