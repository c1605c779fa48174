"""One update, the schedule, and the loop."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from lookback import config, launcher, learner
from lookback.config import Config
from lookback.data import Batch, train_batch
from lookback.metrics import sequence_loss
from lookback.train import NonFiniteLossError, Trainer, TrainSettings, choose_device, fit, learning_rate

SETTINGS = TrainSettings(
    steps=110,
    epochs=None,
    patience=None,
    learning_rate=0.5,
    warmup_steps=10,
    weight_decay=0.0,
    beta2=0.98,
    clip_norm=1.0,
    label_smoothing=0.0,
    validate_every=1,
    save_every=1,
    device="cpu",
    precision="float32",
)


@cache
def setting(*overrides: str) -> Config:
    return config.build(launcher.compose("train", ["experiment=smoke", *overrides]))


def make(settings: Config, **changes: Any) -> tuple[Trainer, Any]:
    task, model = learner.build(settings)
    trainer = Trainer(model, replace(settings.train, **changes))
    return trainer, lambda step: train_batch(task, settings.data, settings.seed, step)


def test_the_rate_rises_in_a_line_and_falls_by_half_a_cosine() -> None:
    rates = [learning_rate(SETTINGS, step) for step in range(110)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[9] == pytest.approx(0.5)
    assert rates[10] == pytest.approx(0.5)
    assert rates[60] == pytest.approx(0.25)
    assert rates[35] == pytest.approx(0.25 * (1 + math.sqrt(0.5)))
    assert 0 < rates[109] < 0.0002


def test_without_warm_up_the_first_rate_is_the_highest() -> None:
    assert learning_rate(replace(SETTINGS, warmup_steps=0), 0) == 0.5


def test_one_update_is_what_adamw_does_with_clipped_gradients_of_the_loss() -> None:
    settings = setting("model.dropout=0.0")
    trainer, batch_at = make(settings)
    _, twin = learner.build(settings)
    trainer.advance(batch_at)
    batch: Batch = batch_at(0)
    rate = settings.train.learning_rate / settings.train.warmup_steps
    optimizer = torch.optim.AdamW(twin.parameters(), lr=rate, betas=(0.9, settings.train.beta2), weight_decay=0.01)
    loss = sequence_loss(twin(batch.source, batch.source_lengths, batch.target[:, :-1]), batch.target[:, 1:])
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(twin.parameters(), settings.train.clip_norm)
    optimizer.step()
    for (name, ours), theirs in zip(trainer.model.named_parameters(), twin.parameters(), strict=True):
        assert theirs.grad is not None
        sure = theirs.grad.abs() > 1e-5  # AdamW's first update is the sign, and of less than that it is rounding's
        torch.testing.assert_close(ours[sure], theirs[sure], rtol=1e-5, atol=1e-6, msg=name)
        assert float((ours - theirs).detach().abs().max()) <= 2.1 * rate, name
    record = trainer.drain()[0]
    assert record.loss == pytest.approx(loss.item(), rel=1e-6)
    assert record.step == 1
    assert record.learning_rate == pytest.approx(rate)


def test_label_smoothing_changes_the_loss_that_is_trained() -> None:
    plain, batch_at = make(setting())
    smooth, _ = make(setting(), label_smoothing=0.1)
    for trainer in (plain, smooth):
        trainer.advance(batch_at)
    assert smooth.drain()[0].loss != plain.drain()[0].loss


def test_mixed_precision_learns_as_float32_does() -> None:
    losses = {}
    for name in ("float32", "bfloat16", "float16"):
        trainer, batch_at = make(setting(), precision=name)
        for _ in range(5):
            trainer.advance(batch_at)
        losses[name] = trainer.drain()[-1].loss
        assert all(weights.dtype == torch.float32 for weights in trainer.model.parameters())
    assert list(losses.values()) == pytest.approx([losses["float32"]] * 3, rel=0.05)
    assert len(set(losses.values())) == 3


def test_a_loss_that_is_not_finite_is_named_with_its_step() -> None:
    trainer, batch_at = make(setting())
    for _ in range(3):
        trainer.advance(batch_at)
    with torch.no_grad():
        trainer.model.get_parameter("output.weight")[:] = math.nan
    trainer.advance(batch_at)
    trainer.advance(batch_at)
    with pytest.raises(NonFiniteLossError, match=r"^loss is not finite at step 4: nan"):
        trainer.drain()


def test_training_goes_on_bit_for_bit_from_a_saved_state() -> None:
    settings = setting("model.dropout=0.3")
    straight, batch_at = make(settings)
    for _ in range(9):
        straight.advance(batch_at)
    first, _ = make(settings)
    for _ in range(4):
        first.advance(batch_at)
    first.drain()
    state, weights = first.state_dict(), first.model.state_dict()
    torch.manual_seed(999)
    second, _ = make(settings)
    second.model.load_state_dict(weights)
    second.load_state_dict(state)
    for _ in range(5):
        second.advance(batch_at)
    assert second.step == 9
    for ours, theirs in zip(second.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_all_pad_source_beside_a_normal_one_keeps_everything_finite() -> None:
    trainer, batch_at = make(setting())
    batch = batch_at(0)
    lengths = batch.source_lengths.clone()
    lengths[0] = 0
    trainer.advance(lambda _: Batch(batch.source, lengths, batch.target))
    assert math.isfinite(trainer.drain()[0].loss)
    assert all(bool(weights.isfinite().all()) for weights in trainer.model.parameters())


def test_tokens_are_counted_without_pads_and_start_marks() -> None:
    trainer, batch_at = make(setting())
    trainer.advance(batch_at)
    trainer.drain()
    assert trainer.tokens == int((batch_at(0).source_lengths - 1).sum())


def test_the_loop_acts_at_each_cadence_and_after_the_last_step() -> None:
    trainer, batch_at = make(setting(), steps=7)
    calls: list[tuple[str, int]] = []
    fit(
        trainer,
        batch_at,
        [
            (3, lambda: calls.append(("three", trainer.step))),
            (0, lambda: calls.append(("never", trainer.step))),
            (5, lambda: calls.append(("five", trainer.step))),
        ],
        lambda: False,
    )
    assert calls == [("three", 3), ("five", 5), ("three", 6), ("three", 7), ("five", 7)]


def test_the_loop_stops_after_the_step_when_told_to() -> None:
    trainer, batch_at = make(setting(), steps=7)
    fit(trainer, batch_at, [], lambda: trainer.step == 4)
    assert trainer.step == 4


def test_auto_takes_cuda_only_where_there_is_one() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device("cpu").type == "cpu"


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_forward_pass_runs_in_the_precision_that_was_asked_for(precision: str, dtype: torch.dtype) -> None:
    trainer, batch_at = make(setting(), precision=precision)
    seen: list[torch.dtype] = []
    trainer.model.get_submodule("output").register_forward_hook(lambda *parts: seen.append(parts[2].dtype))
    trainer.advance(batch_at)
    assert seen == [dtype]
