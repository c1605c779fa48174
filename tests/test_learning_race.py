"""The race of learning: what is right, when it is looked at, who is beside whom. No time is asserted."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lookback import contestants, learning_race, peers_x
from lookback.benchmark import measure
from lookback.config import Config
from lookback.decode import greedy
from lookback.evaluate import validation_batch
from lookback.learning_race import NEVER, Finish, all_right, rows, run
from lookback.metrics import score
from lookback.timing import Work
from lookback.tokens import EOS, PAD
from lookback.train import Trainer

SMALL = ["data.batch_size=16", "data.max_length=3", "model.d_model=24", "model.d_ff=40", "train.warmup_steps=10"]


def test_right_by_teacher_forcing_is_right_by_greedy_decoding() -> None:
    """On the way of a training, where some rows are right and some are not."""
    work = Work.of(1, 1, [*SMALL, "train.steps=300", "train.learning_rate=0.01"])
    loaded = work.config
    model, task = contestants.ours(loaded), loaded.task()
    trainer, batch = Trainer(model, loaded.train), validation_batch(task, [1] * 26 + [2] * 40 + [3] * 40)
    batches = Work.of(1, 200, work.overrides).batches()
    mixed = 0
    for _ in range(10):
        for _ in range(20):
            trainer.advance(batches.__getitem__)
        decoded = greedy(model, batch.source, batch.source_lengths, batch.labels.shape[1] + 5)
        expected = score(decoded.tokens, batch.labels).exact_match
        assert torch.equal(all_right(model, batch), expected)
        mixed += bool(expected.any()) and not bool(expected.all())
    assert mixed > 0


class Answers(torch.nn.Module):
    """Predicts the given tokens."""

    def __init__(self, answers: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.answers = answers

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(self.answers, 30).float() + 0 * self.weight


def test_the_end_counts_and_pads_do_not() -> None:
    batch = validation_batch(Work.of(1, 1, []).config.task(), [2, 4, 4])
    answers = batch.labels.clone()
    answers[0, 3:] = 9  # where the first row has pads
    assert batch.labels[0].tolist()[2:] == [EOS, PAD, PAD]
    assert all_right(Answers(answers), batch).tolist() == [True, True, True]
    answers[0, 2] = 9  # in place of EOS
    answers[2, 0] = 3  # UNK, which no label is
    assert all_right(Answers(answers), batch).tolist() == [False, True, False]


def looked(monkeypatch: pytest.MonkeyPatch, right_at: int, **settings: int) -> tuple[Finish, list[int], list[Any]]:
    """The finish of a run that is right from a step on, the steps at which it was looked at, and what was."""
    for name, value in settings.items():
        monkeypatch.setattr(learning_race, name, value)
    steps: list[int] = []
    batches: list[Any] = []
    trainers: list[Trainer] = []

    class Recorder(Trainer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            trainers.append(self)

    def look(model: object, batch: Any) -> Tensor:
        steps.append(trainers[-1].step)
        batches.append(batch)
        return torch.tensor([True, steps[-1] >= right_at])

    monkeypatch.setattr(learning_race, "Trainer", Recorder)
    monkeypatch.setattr(learning_race, "all_right", look)
    config = Work.of(1, 1, [*SMALL, "train.steps=7"]).config
    finish = run(config, contestants.ours)
    assert trainers[0].settings == config.train
    assert finish is NEVER or finish.seconds == trainers[-1].seconds
    return finish, steps, batches


def test_a_run_ends_at_the_first_look_that_finds_all_right(monkeypatch: pytest.MonkeyPatch) -> None:
    finish, steps, _ = looked(monkeypatch, right_at=10, EVERY=4, CAP=2)
    assert finish.steps == 12
    assert steps == [4, 8, 12]  # past train.steps, which is 7


def test_a_run_that_never_has_all_right_ends_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    finish, steps, batches = looked(monkeypatch, right_at=99, EVERY=4, CAP=2)
    assert finish is NEVER
    assert steps == [4, 8, 12]
    assert sorted(batches[0].source_lengths.tolist()) == [3] * 26 + [7] * 64 + [12] * 64 + [22] * 64


def test_looking_takes_no_time_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def look(model: object, batch: object) -> Tensor:
        nonlocal now
        now += 100.0
        return torch.tensor([now > 250])

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(learning_race, "EVERY", 2)
    monkeypatch.setattr(learning_race, "all_right", look)
    assert run(Work.of(1, 1, [*SMALL, "train.steps=7"]).config, contestants.ours) == Finish(0.0, 6)


def test_each_of_ours_is_beside_each_peer_and_the_fastest_peer_comes_first_and_is_named() -> None:
    finishes = {
        "two-ended": [Finish(3.0, 30), Finish(6.0, 60), Finish(1.0, 10)],
        "sinusoidal": [Finish(6.0, 60), NEVER, NEVER],
        "nn.Transformer": [NEVER, Finish(2.0, 20), NEVER],
        "x-transformers": [Finish(9.0, 90), Finish(12.0, 40), Finish(2.0, 50)],
    }
    found = rows(finishes)
    assert [(row.name, row.unit, row.against) for row in found] == [
        (f"{name}: to all right", unit, peer)
        for name in ("two-ended", "sinusoidal")
        for peer in ("x-transformers (fastest)", "nn.Transformer")
        for unit in ("s", "steps")
    ]
    seconds, steps, beside_torch, *_ = found
    assert (seconds.ours, seconds.theirs, seconds.ratio) == (3.0, 9.0, 0.5)  # of 1/3, 1/2 and 1/2
    assert (steps.ours, steps.theirs) == (30, 50)
    assert (beside_torch.ours, beside_torch.theirs) == (3.0, None)
    assert found[4].ours is None
    assert not any("fastest" in row.against for row in rows({name: [NEVER] for name in finishes}))
    assert found[6].rounds == [(6.0, None), (None, 2.0), (None, None)]


def test_all_runners_take_turns_seed_by_seed_each_with_its_own_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, str, str, str, float, int]] = []

    def remember(loaded: Config, builder: Any) -> Finish:
        model = builder(loaded)
        kind = type(model).__name__
        positions = loaded.raw["model"]["positions"]["_target_"].rpartition(".")[2]
        size = getattr(model, "output").weight.shape[1]  # noqa: B009 (every model here has one)
        done.append(
            (loaded.seed, kind, positions, str(loaded.raw["model"]["log_length"]), loaded.train.clip_norm, size)
        )
        return Finish(1.0, 25)

    monkeypatch.setattr(learning_race, "run", remember)
    monkeypatch.setattr(learning_race, "SEEDS", (4, 2))
    monkeypatch.setitem(learning_race.OVERRIDES, "nn.Transformer", ("train.clip_norm=0.25",))
    found = measure(1, 1, [*SMALL, "train.clip_norm=0.5"], ["learning"])
    runners = [
        ("Transformer", "Addressed", "True", 0.5),
        ("Transformer", "Sinusoidal", "False", 0.5),
        ("TorchTransformer", "Sinusoidal", "False", 0.25),
        *([("XTransformersPeer", "Sinusoidal", "False", 0.5)] if peers_x.version() else []),
    ]
    assert done == [(seed, *runner, 24) for seed in (4, 2) for runner in runners]
    assert all(len(row.rounds) == 2 and row.ratio == 1.0 for row in found.rows)


def test_a_small_race_is_run_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning_race, "SEEDS", (5,))
    monkeypatch.setattr(learning_race, "LENGTHS", (1,))
    monkeypatch.setattr(peers_x, "version", lambda: None)
    small = [*SMALL, "data.max_length=1", "train.steps=200", "train.learning_rate=0.01"]
    found = measure(1, 1, small, ["learning"]).rows
    assert len(found) == 4
    assert all(row.ours is not None and row.theirs is not None and row.ours < math.inf for row in found)
