"""The benchmark compares like with like, and its sums are those done by hand. No time is asserted."""

import io
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from lookback import attention, benchmark, config, session
from lookback.benchmark import Report, measure
from lookback.data import Batch, DataSettings, train_batch
from lookback.launcher import compose
from lookback.models.rnn import Rnn
from lookback.models.transformer import Transformer
from lookback.observer import Observer
from lookback.peers import BareRnn, TorchTransformer
from lookback.tasks.copy import Copy
from lookback.tasks.reverse import Reverse
from lookback.timing import Row, alternate
from lookback.tokens import PAD
from lookback.train import Trainer

SCRIPT = Path(__file__).parents[1] / "scripts" / "benchmark.py"
ROUNDS, STEPS = 3, 2
SMALL = ["data.batch_size=5", "data.max_length=7", "model.d_model=12", "model.num_heads=3", "model.d_ff=20"]


@pytest.fixture(scope="module")
def report() -> Report:
    return measure(ROUNDS, STEPS, SMALL)


def row(report: Report, name: str) -> Row:
    (found,) = (row for row in report.rows if row.name == name)
    return found


def middle(values: list[float]) -> float:
    """The median of an odd number of values."""
    return sorted(values)[len(values) // 2]


def test_a_row_takes_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians() -> None:
    summed = Row.of("speed", "ms", "a peer", [(1.0, 2.0), (9.0, 3.0), (8.0, 4.0)])
    rounds = [(1.0, 2.0), (9.0, 3.0), (8.0, 4.0)]  # ratios 1/2, 3 and 2
    assert summed == Row("speed", "ms", "a peer", 8.0, 3.0, 2.0, 0.5, 3.0, rounds)


def test_rounds_alternate_after_an_untimed_round_of_each() -> None:
    done: list[str] = []
    seconds = alternate(lambda: done.append("ours"), lambda: done.append("theirs"), rounds=3)
    assert done == ["ours", "theirs"] * 4
    assert len(seconds) == 3
    assert all(value > 0 for pair in seconds for value in pair)


def test_seconds_go_to_the_side_that_spent_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def work(seconds: float) -> Callable[[], None]:
        def spend() -> None:
            nonlocal now
            now += seconds

        return spend

    monkeypatch.setattr("time.perf_counter", lambda: now)
    assert alternate(work(0.5), work(2.0), rounds=2) == [(0.5, 2.0), (0.5, 2.0)]


def test_every_row_of_a_report_has_all_rounds_and_their_sums(report: Report) -> None:
    cell = "GRU"
    assert [(row.name, row.unit, row.against, len(row.rounds)) for row in report.rows] == [
        ("training step", "ms", "nn.Transformer", ROUNDS),
        ("target tokens", "per second", "nn.Transformer", ROUNDS),
        ("loss of the first step", "nats", "nn.Transformer", 1),
        ("rnn training step", "ms", f"bare nn.{cell}", ROUNDS),
        ("rnn target tokens", "per second", f"bare nn.{cell}", ROUNDS),
        ("rnn loss of first step", "nats", f"bare nn.{cell}", 1),
        ("forward pass with maps", "ms", "without maps", ROUNDS),
        ("training step, watched", "ms", "nobody watches", ROUNDS),
    ]
    for found in report.rows:
        ratios = [ours / theirs for ours, theirs in found.rounds]
        assert found.ours == middle([ours for ours, _ in found.rounds])
        assert found.theirs == middle([theirs for _, theirs in found.rounds])
        assert (found.ratio, found.ratio_min, found.ratio_max) == (middle(ratios), min(ratios), max(ratios))


@pytest.mark.parametrize("prefix", ["", "rnn "])
def test_tokens_per_second_are_the_real_target_tokens_of_each_timed_round(report: Report, prefix: str) -> None:
    settings = DataSettings(batch_size=5, min_length=1, max_length=7)
    task = Reverse(alphabet_size=26)
    labels = [train_batch(task, settings, 0, step).target[:, 1:] for step in range(STEPS * (ROUNDS + 1))]
    times, speeds = (row(report, prefix + name).rounds for name in ("training step", "target tokens"))
    for number in range(ROUNDS):
        own = labels[STEPS * (number + 1) : STEPS * (number + 2)]
        tokens = sum(int((batch != PAD).sum()) for batch in own)
        for milliseconds, speed in zip(times[number], speeds[number], strict=True):
            assert speed == pytest.approx(tokens / (milliseconds * STEPS / 1000))


def test_both_models_start_from_the_same_function(report: Report) -> None:
    ours, theirs = row(report, "loss of the first step").rounds[0]
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_both_recurrent_models_start_from_the_same_function_where_no_row_has_pads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(benchmark, "SECTIONS", (benchmark.recurrent,))
    ours, theirs = row(measure(1, 1, [*SMALL, "data.min_length=7"]), "rnn loss of first step").rounds[0]
    assert ours == pytest.approx(theirs, rel=1e-6)


def trainers_of(monkeypatch: pytest.MonkeyPatch, section: Callable[..., Any], overrides: list[str]) -> list[Any]:
    """Both trainers of a section, each with its first weights and the batches that it was given."""
    trainers: list[Any] = []

    class Recorder(Trainer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.batches: list[Batch] = []
            self.start = {name: weights.clone() for name, weights in self.model.state_dict().items()}
            trainers.append(self)

        def advance(self, batch_at: Callable[[int], Batch]) -> None:
            self.batches.append(batch_at(self.step))
            super().advance(batch_at)

    monkeypatch.setattr(benchmark, "Trainer", Recorder)
    monkeypatch.setattr(benchmark, "SECTIONS", (section,))
    measure(ROUNDS, STEPS, overrides)
    return trainers


@pytest.mark.parametrize(
    ("section", "kinds"),
    [(benchmark.training, (Transformer, TorchTransformer)), (benchmark.recurrent, (Rnn, BareRnn))],
)
def test_both_models_get_the_same_batches_with_the_same_optimiser(
    monkeypatch: pytest.MonkeyPatch, section: Callable[..., Any], kinds: tuple[type, type]
) -> None:
    trainers = trainers_of(monkeypatch, section, SMALL)
    ours, theirs = trainers
    assert (type(ours.model), type(theirs.model)) == kinds
    assert len(ours.batches) == STEPS * (ROUNDS + 1)
    for mine, other in zip(ours.batches, theirs.batches, strict=True):
        torch.testing.assert_close((mine.source, mine.target), (other.source, other.target))
    assert not torch.equal(ours.batches[0].source, ours.batches[1].source)
    assert ours.settings == theirs.settings
    assert ours.optimizer.defaults == theirs.optimizer.defaults
    counts = [sum(p.numel() for p in trainer.model.parameters()) for trainer in trainers]
    assert counts[0] == counts[1]


def test_the_recurrent_section_takes_all_overrides_but_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    others = ["seed=3", "task=copy", "task.alphabet_size=9", "train.clip_norm=0.5", "train.learning_rate=0.01"]
    trainers = trainers_of(monkeypatch, benchmark.recurrent, [*SMALL, *others])
    settings = DataSettings(batch_size=5, min_length=1, max_length=7)
    first = train_batch(Copy(alphabet_size=9), settings, 3, 0)
    plain = config.build(compose("train", ["model=rnn", "model.cell=gru", "train.device=cpu", *SMALL[:2], *others]))
    _, expected = session.build(plain)
    for trainer in trainers:
        assert torch.equal(trainer.batches[0].target, first.target)
        assert trainer.settings == plain.train
        torch.testing.assert_close(trainer.start, expected.state_dict(), rtol=0, atol=0)


def test_only_ours_of_the_maps_row_runs_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def spy(name: str) -> Callable[..., Any]:
        function = getattr(attention, name)

        def called(*arguments: Tensor) -> object:
            assert not torch.is_grad_enabled()
            calls.append(name)
            return function(*arguments)

        return called

    for name in ("attend", "attend_fused"):
        monkeypatch.setattr(attention, name, spy(name))
    monkeypatch.setattr(benchmark, "SECTIONS", (benchmark.maps,))
    measure(1, STEPS, SMALL)
    attentions = 6 * STEPS  # two in the encoder's layers, four in the decoder's
    assert calls == (["attend"] * attentions + ["attend_fused"] * attentions) * 2


def test_what_watching_costs_is_its_share_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds of scores, pictures and weights each, at cadences of 4, 5 and 20 steps; two seconds a step."""
    now = 0.0

    def spend(amount: float) -> Callable[..., None]:
        def work(*arguments: object) -> None:
            nonlocal now
            now += amount

        return work

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(Observer, "measure", spend(10.0))
    monkeypatch.setattr(Observer, "draw", spend(10.0))
    monkeypatch.setattr(benchmark, "keep_weights", spend(10.0))
    monkeypatch.setattr(benchmark, "advance", lambda trainer, batches, steps: spend(2.0 * steps)())
    monkeypatch.setattr(benchmark, "SECTIONS", (benchmark.watching,))
    cadences = ["board.alignment_every=4", "board.images_every=5", "board.snapshots_every=20"]
    [found] = measure(2, 3, [*SMALL, *cadences]).rows
    assert found.rounds == [(2000.0 + 2500.0 + 2000.0 + 500.0, 2000.0)] * 2
    [off] = measure(1, 3, [*SMALL, *(f"{text.partition('=')[0]}=0" for text in cadences)]).rows
    assert off.ratio == 1.0


def test_the_report_says_on_what_machine_and_with_which_settings(report: Report) -> None:
    assert report.machine["torch"] == torch.__version__
    assert report.machine["threads"] == torch.get_num_threads()
    assert report.machine["processor"]
    assert 50 < report.peak_memory_mib < 100_000  # an imported torch alone takes more than 50
    assert report.config["model"]["d_model"] == 12
    assert report.config["train"]["device"] == "cpu"
    assert (report.rounds, report.steps) == (ROUNDS, STEPS)


def test_the_table_shows_every_row_within_eighty_columns(report: Report) -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(benchmark.table(report))
    text = console.export_text()
    assert "…" not in text
    for found in report.rows:
        assert f"{found.name}, {found.unit}" in text
        assert f"theirs: {found.against}" in text
        assert f"{found.ratio:.3f}" in text


def run_script(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_script_prints_a_table_and_writes_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[tuple[int, int]] = []

    def small(rounds: int, steps: int) -> Report:
        asked.append((rounds, steps))
        return measure(rounds, steps, SMALL)

    monkeypatch.setattr(benchmark, "measure", small)
    path = tmp_path / "benchmark.json"
    assert run_script(monkeypatch, "--rounds", "3", "--steps", "1", "--json", str(path)) == 0
    assert asked == [(3, 1)]
    assert "training step, ms" in capsys.readouterr().out
    written = json.loads(path.read_text(encoding="utf-8"))
    step = written["rows"][0]
    ratios = sorted(ours / theirs for ours, theirs in step["rounds"])
    assert (step["ratio_min"], step["ratio"], step["ratio_max"]) == tuple(ratios)
    assert {"rounds", "steps", "machine", "peak_memory_mib", "config"} < set(written)


def test_the_script_measures_fifteen_rounds_of_ten_steps_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: Report
) -> None:
    asked: list[tuple[int, int]] = []

    def remember(rounds: int, steps: int) -> Report:
        asked.append((rounds, steps))
        return report

    monkeypatch.setattr(benchmark, "measure", remember)
    assert run_script(monkeypatch) == 0
    assert asked == [(15, 10)]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rounds", "0"], "argument --rounds: must be a whole number above 0, but is 0"),
        (["--steps", "-3"], "argument --steps: must be a whole number above 0, but is -3"),
        (["--steps", "ten"], "argument --steps: must be a whole number above 0, but is ten"),
        (["--json", "no/such/report.json"], "argument --json: no such folder: no/such"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert run_script(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"benchmark.py: error: {sentence}"


def test_a_report_that_cannot_be_written_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: Report, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmark, "measure", lambda *_: report)
    assert run_script(monkeypatch, "--json", str(tmp_path)) == 1
    shown = capsys.readouterr()
    assert "training step, ms" in shown.out
    assert shown.err.startswith("benchmark: ")
