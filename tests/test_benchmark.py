"""The benchmark compares like with like, and its sums are those done by hand. No time is asserted."""

import io
import json
import math
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from lookback import attention, benchmark, config, costs, learner, peers_x, races
from lookback.benchmark import Report, measure
from lookback.data import Batch, DataSettings, train_batch
from lookback.launcher import compose
from lookback.models.rnn import Rnn
from lookback.models.transformer import Transformer
from lookback.observer import Observer
from lookback.peers import TorchTransformer
from lookback.peers_rnn import BareRnn
from lookback.peers_x import XTransformersPeer
from lookback.schema import ConfigError
from lookback.tasks.copy import Copy
from lookback.tasks.reverse import Reverse
from lookback.timing import Figure, Row, Work, alternate, beside
from lookback.tokens import PAD
from lookback.train import Trainer

SCRIPT = Path(__file__).parents[1] / "scripts" / "benchmark.py"
ROUNDS, STEPS = 3, 2
SMALL = ["data.batch_size=5", "data.max_length=7", "model.d_model=12", "model.num_heads=3", "model.d_ff=20"]


QUICK = ("training", "recurrent", "maps", "watching")
HAS_X = peers_x.version() is not None
X = ["x-transformers"] if HAS_X else []


@pytest.fixture(scope="module")
def report() -> Report:
    return measure(ROUNDS, STEPS, SMALL, QUICK)


def row(report: Report, name: str, against: str = "") -> Row:
    (found,) = (row for row in report.rows if row.name == name and row.against.startswith(against))
    return found


def pairs(found: Row) -> list[tuple[float, float]]:
    """The rounds of a row in which both came to an end, which must be all."""
    return [(ours, theirs) for ours, theirs in found.rounds if ours is not None and theirs is not None]


def middle(values: list[float]) -> float:
    """The median of an odd number of values."""
    return sorted(values)[len(values) // 2]


def test_a_row_takes_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians() -> None:
    summed = Row.of("speed", "ms", "a peer", [(1.0, 2.0), (9.0, 3.0), (8.0, 4.0)])
    # ratios 1/2, 3 and 2
    assert summed == Row("speed", "ms", "a peer", 8.0, 3.0, 2.0, 0.5, 3.0, [(1.0, 2.0), (9.0, 3.0), (8.0, 4.0)])


def test_what_was_never_reached_counts_as_longest_and_is_none() -> None:
    never = math.inf
    once = Row.of("run", "s", "a peer", [(1.0, never), (6.0, 3.0), (8.0, 2.0)])  # ratios 0, 2 and 4
    assert once == Row("run", "s", "a peer", 6.0, 3.0, 2.0, None, 4.0, [(1.0, None), (6.0, 3.0), (8.0, 2.0)])
    mostly = Row.of("run", "s", "a peer", [(1.0, never), (6.0, never), (8.0, 2.0)])
    assert (mostly.ours, mostly.theirs, mostly.ratio, mostly.ratio_max) == (6.0, None, None, 4.0)
    worse = Row.of("run", "s", "a peer", [(never, 1.0), (never, 3.0), (8.0, 2.0)])
    assert (worse.ours, worse.theirs, worse.ratio, worse.ratio_min) == (None, 2.0, None, 4.0)


def test_where_neither_comes_to_an_end_there_is_no_ratio_at_all() -> None:
    found = Row.of("run", "s", "a peer", [(math.inf, math.inf), (6.0, 3.0), (8.0, 2.0)])
    assert (found.ours, found.theirs) == (8.0, 3.0)
    assert (found.ratio, found.ratio_min, found.ratio_max) == (None, None, None)


def test_rounds_alternate_after_an_untimed_round_of_each() -> None:
    done: list[str] = []
    works = [lambda name=name: done.append(name) for name in ("ours", "one", "other")]
    seconds = alternate(*works, rounds=3)
    assert done == ["ours", "one", "other"] * 4
    assert [len(found) for found in seconds] == [3, 3, 3]
    assert all(value > 0 for found in seconds for value in found)
    alternate(*works, rounds=2, warm=False)
    assert len(done) == 3 * (4 + 2)


def test_seconds_go_to_the_side_that_spent_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def work(seconds: float) -> Callable[[], None]:
        def spend() -> None:
            nonlocal now
            now += seconds

        return spend

    monkeypatch.setattr("time.perf_counter", lambda: now)
    found = alternate(work(0.5), work(2.0), work(4.0), rounds=2)
    assert found == [(0.5, 2.0, 4.0)] * 2
    assert beside(found, 2) == [(0.5, 4.0)] * 2


def test_every_row_of_a_report_has_all_rounds_and_their_sums(report: Report) -> None:
    both = [("training step", "ms"), ("real tokens", "per second")]
    assert [(row.name, row.unit, row.against, len(row.rounds)) for row in report.rows] == [
        *((name, unit, "nn.Transformer", ROUNDS) for name, unit in both),
        ("loss of first step", "nats", "nn.Transformer", 1),
        *((name, unit, peer, ROUNDS) for peer in X for name, unit in both),
        ("rnn training step", "ms", "bare nn.GRU", ROUNDS),
        ("rnn real tokens", "per second", "bare nn.GRU", ROUNDS),
        ("rnn loss of first step", "nats", "bare nn.GRU", 1),
        ("forward pass with maps", "ms", "without maps", ROUNDS),
        ("training step, watched", "ms", "nobody watches", ROUNDS),
    ]
    for found in report.rows:
        rounds = pairs(found)
        assert len(rounds) == len(found.rounds)
        ratios = [ours / theirs for ours, theirs in rounds]
        assert found.ours == middle([ours for ours, _ in rounds])
        assert found.theirs == middle([theirs for _, theirs in rounds])
        assert (found.ratio, found.ratio_min, found.ratio_max) == (middle(ratios), min(ratios), max(ratios))


@pytest.mark.parametrize(("prefix", "peer"), [("", "nn."), *(("", peer) for peer in X), ("rnn ", "bare")])
def test_tokens_per_second_are_the_real_symbols_of_source_and_target_of_each_timed_round(
    report: Report, prefix: str, peer: str
) -> None:
    settings = DataSettings(batch_size=5, min_length=1, max_length=7)
    task = Reverse(alphabet_size=26)
    drawn = [train_batch(task, settings, 0, step) for step in range(STEPS * (ROUNDS + 1))]
    found = [pairs(row(report, prefix + name, peer)) for name in ("training step", "real tokens")]
    for number, (times, speeds) in enumerate(zip(*found, strict=True)):
        own = drawn[STEPS * (number + 1) : STEPS * (number + 2)]
        # of a target, all but BOS is predicted
        tokens = sum(int((batch.source != PAD).sum() + (batch.target[:, 1:] != PAD).sum()) for batch in own)
        for milliseconds, speed in zip(times, speeds, strict=True):
            assert speed == pytest.approx(tokens / (milliseconds * STEPS / 1000))


def test_both_models_start_from_the_same_function(report: Report) -> None:
    [(ours, theirs)] = pairs(row(report, "loss of first step"))
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_both_recurrent_models_start_from_the_same_function_where_no_row_has_pads() -> None:
    found = measure(1, 1, [*SMALL, "data.min_length=7"], ["recurrent"])
    [(ours, theirs)] = pairs(row(found, "rnn loss of first step"))
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_the_wide_race_is_the_same_at_the_wide_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    trainers = trainers_of(monkeypatch, "wide", [*SMALL, "train.clip_norm=0.5"], rounds=9)
    assert len(trainers) == 2 + len(X)
    for trainer in trainers:
        assert trainer.settings.clip_norm == 0.5  # other overrides are kept
        assert len(trainer.batches) == STEPS * (races.WIDE_ROUNDS + 1)
        assert trainer.batches[0].source.shape == (6, 3 + 2)
        assert trainer.model.output.in_features == 18


def trainers_of(
    monkeypatch: pytest.MonkeyPatch, section: str, overrides: list[str], rounds: int = ROUNDS
) -> list[Any]:
    """All trainers of a section, each with its first weights and the batches that it was given."""
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

    monkeypatch.setattr(races, "Trainer", Recorder)
    small = ("model.d_model=18", "data.batch_size=6", "data.min_length=3", "data.max_length=3")
    monkeypatch.setattr(races, "WIDE", small)
    measure(rounds, STEPS, overrides, [section])
    return trainers


@pytest.mark.parametrize(
    ("section", "kinds"), [("training", (Transformer, TorchTransformer)), ("recurrent", (Rnn, BareRnn))]
)
def test_all_models_get_the_same_batches_with_the_same_optimiser(
    monkeypatch: pytest.MonkeyPatch, section: str, kinds: tuple[type, type]
) -> None:
    ours, theirs, *others = trainers_of(monkeypatch, section, SMALL)
    assert (type(ours.model), type(theirs.model)) == kinds
    assert [type(other.model) for other in others] == [XTransformersPeer] * (len(X) if section == "training" else 0)
    assert len(ours.batches) == STEPS * (ROUNDS + 1)
    for peer in (theirs, *others):
        for mine, other in zip(ours.batches, peer.batches, strict=True):
            torch.testing.assert_close((mine.source, mine.target), (other.source, other.target))
        assert ours.settings == peer.settings
        assert ours.optimizer.defaults == peer.optimizer.defaults
    assert not torch.equal(ours.batches[0].source, ours.batches[1].source)
    counts = [sum(p.numel() for p in trainer.model.parameters()) for trainer in (ours, theirs)]
    assert counts[0] == counts[1]


def test_the_recurrent_section_takes_all_overrides_but_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    others = ["seed=3", "task=copy", "task.alphabet_size=9", "train.clip_norm=0.5", "train.learning_rate=0.01"]
    trainers = trainers_of(monkeypatch, "recurrent", [*SMALL, *others])
    settings = DataSettings(batch_size=5, min_length=1, max_length=7)
    first = train_batch(Copy(alphabet_size=9), settings, 3, 0)
    plain = config.build(compose("train", ["model=rnn", "model.cell=gru", "train.device=cpu", *SMALL[:2], *others]))
    _, expected = learner.build(plain)
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
    measure(1, STEPS, SMALL, ["maps"])
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
    monkeypatch.setattr(costs, "keep_weights", spend(10.0))
    monkeypatch.setattr(costs, "advance", lambda trainer, batches, steps: spend(2.0 * steps)())
    cadences = ["board.alignment_every=4", "board.images_every=5", "board.snapshots_every=20"]
    [found] = measure(2, 3, [*SMALL, *cadences], ["watching"]).rows
    assert found.rounds == [(2000.0 + 2500.0 + 2000.0 + 500.0, 2000.0)] * 2
    [off] = measure(1, 3, [*SMALL, *(f"{text.partition('=')[0]}=0" for text in cadences)], ["watching"]).rows
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
        assert f"{found.name}, {found.unit} " in text
        assert f"against {found.against} " in text
        assert f"{found.ratio:.3f} " in text
        assert (f"{found.ratio_min:.3f}-{found.ratio_max:.3f}" in text) == (len(found.rounds) > 1)


def run_script(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_script_prints_a_table_and_writes_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "benchmark.json"
    typed = ["--rounds", "3", "--steps", "1", "--sections", "maps", "training", "--overrides", *SMALL]
    assert run_script(monkeypatch, *typed, "--json", str(path)) == 0
    shown = capsys.readouterr()
    assert "training step, ms" in shown.out
    assert shown.err.splitlines() == ["measuring: training", "measuring: maps"]
    written = json.loads(path.read_text(encoding="utf-8"))
    step = written["rows"][0]
    assert (step["name"], len(step["rounds"])) == ("training step", 3)
    ratios = sorted(ours / theirs for ours, theirs in step["rounds"])
    assert (step["ratio_min"], step["ratio"], step["ratio_max"]) == tuple(ratios)
    assert (written["rounds"], written["steps"], written["config"]["model"]["d_ff"]) == (3, 1, 20)
    assert set(written["section_seconds"]) == {"training", "maps"}
    assert {"figures", "machine", "peak_memory_mib"} < set(written)


def test_the_script_measures_all_sections_for_fifteen_rounds_of_ten_steps_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: Report
) -> None:
    asked: list[tuple[object, ...]] = []

    def remember(*arguments: object) -> Report:
        asked.append(arguments[:4])
        return report

    monkeypatch.setattr(benchmark, "measure", remember)
    assert run_script(monkeypatch) == 0
    assert asked == [(15, 10, [], [])]
    capsys.readouterr()


THERE_ARE = ", ".join(section.__name__ for section in benchmark.SECTIONS)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rounds", "0"], "argument --rounds: must be a whole number above 0, but is 0"),
        (["--steps", "-3"], "argument --steps: must be a whole number above 0, but is -3"),
        (["--steps", "ten"], "argument --steps: must be a whole number above 0, but is ten"),
        (["--json", "no/such/report.json"], "argument --json: no such folder, or no file: no/such/report.json"),
        (
            ["--sections", "maps", "trainin"],
            f"argument --sections: section must be one of {THERE_ARE}, but is trainin",
        ),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert run_script(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"benchmark.py: error: {sentence}"


def test_a_wrong_override_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(monkeypatch, "--overrides", "data.batch_size=0") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("benchmark: data.batch_size")


def test_a_report_that_cannot_be_written_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: Report, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmark, "measure", lambda *_: report)
    assert run_script(monkeypatch, "--json", "/dev/full") == 1
    shown = capsys.readouterr()
    assert "training step, ms" in shown.out
    assert shown.err.startswith("benchmark: ")


def test_the_sections_run_in_one_order_whatever_was_typed() -> None:
    assert [section.__name__ for section in benchmark.chosen(["maps", "training"])] == ["training", "maps"]
    assert benchmark.chosen([]) == list(benchmark.SECTIONS)


def printed(report: Report) -> str:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(benchmark.table(report))
    return console.export_text()


def test_without_x_transformers_its_rows_are_left_out_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentence = "x-transformers is not installed: its rows are left out (extra `bench`)"
    monkeypatch.setattr(peers_x, "version", lambda: None)
    without = measure(1, 1, SMALL, ["training"])
    assert [found.against for found in without.rows] == ["nn.Transformer"] * 3
    assert sentence in printed(without)
    monkeypatch.setattr(peers_x, "version", lambda: "9.87")
    present = replace(without, machine={**without.machine, "x-transformers": "9.87"})
    assert sentence not in printed(present)
    assert "x-transformers 9.87" in printed(present)


def test_a_figure_is_shown_with_its_interval_and_nothing_reached_as_a_dash(report: Report) -> None:
    figures = [Figure("training step, memory", "exponent", 1.25, -0.5, 1234.5, [])]
    never = Row.of("two-ended: to all right", "s", "x-transformers (fastest)", [(7.0, math.inf)])
    lines = printed(replace(report, rows=[never], figures=figures)).splitlines()
    [figure] = [line.split() for line in lines if "exponent" in line]
    assert figure[-3:] == ["1.250", "-0.500", "1,234"]
    [run] = [line.split() for line in lines if "to all right, s " in line]
    assert run[-4:] == ["7.000", "-", "-", "-"]


def test_validation_and_evaluation_are_measured_against_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds a step; a validation has two halves of seven seconds each, an evaluation takes thirty."""
    now = 0.0

    def spend(amount: float) -> Callable[..., None]:
        def work(*arguments: object) -> None:
            nonlocal now
            now += amount

        return work

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(costs, "validate", spend(7.0))
    monkeypatch.setattr(costs, "exact_match", spend(7.0))
    monkeypatch.setattr(costs, "evaluate", spend(30.0))
    monkeypatch.setattr(costs, "advance", lambda trainer, batches, steps: spend(3.0 * steps)())
    found = measure(2, 4, SMALL, ["checking"])
    assert pairs(row(found, "validation")) == [(14_000.0, 3000.0)] * 2
    assert pairs(row(found, "evaluation")) == [(30_000.0, 3000.0)] * 2


def test_a_start_is_that_of_a_process_of_its_own_which_must_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "STARTS", {"one": "pass", "other": "import os; assert os.getppid() > 1", "base": ""})
    found = measure(1, 1, SMALL, ["starting"])
    assert [(row.name, row.unit, row.against, len(row.rounds)) for row in found.rows] == [
        ("one", "s", "base", 1),
        ("other", "s", "base", 1),
    ]
    monkeypatch.setattr(costs, "STARTS", {"wrong": "1 / 0", "base": ""})
    with pytest.raises(subprocess.CalledProcessError):
        measure(1, 1, SMALL, ["starting"])


def test_the_help_that_is_timed_is_that_of_training() -> None:
    code = costs.STARTS["train.py --help"]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "python scripts/train.py task=copy seed=1" in run.stdout


def test_a_section_that_finds_different_work_is_named_and_the_others_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(work: Work) -> list[Row]:
        raise ArithmeticError("they wrote 5 and 6")

    def fine(work: Work) -> list[Row]:
        return [
            Row.of("fine", "ms", "one round", [(2.0, 4.0)]),
            Row.of("fine", "ms", "two", [(2.0, 4.0), (3.0, 4.0)]),
        ]

    monkeypatch.setattr(benchmark, "SECTIONS", (broken, fine))
    report = measure(1, 1, SMALL)
    assert report.failures == {"broken": "they wrote 5 and 6"}
    assert [row.name for row in report.rows] == ["fine", "fine"]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(benchmark.table(report))
    text = console.export_text()
    assert "FAILED broken: they wrote 5 and 6" in text
    lines = [line.split() for line in text.splitlines() if line.strip().startswith("against")]
    assert [len(line) for line in lines] == [3, 2]
    shown = [line.split()[-2:] for line in text.splitlines() if line.strip().startswith("fine")]
    assert shown == [["0.500", "-"], ["0.625", "0.500-0.750"]]


def test_other_positions_than_waves_are_refused_beside_torch() -> None:
    reason = measure(1, 1, [*SMALL, "model/positions=rotary"], ["training"]).failures["training"]
    assert reason == "positions must be sinusoidal beside nn.Transformer, which can add no others, but are Rotary"


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("model.log_length=true", "model.log_length must be false beside peers"),
        ("model=rnn", "model must be a Transformer here, but is Rnn"),
    ],
)
def test_a_model_that_no_peer_can_be_like_is_refused(override: str, reason: str) -> None:
    assert measure(1, 1, ["data.batch_size=3", override], ["training"]).failures["training"].startswith(reason)


@pytest.mark.parametrize("override", ["foo=bar", "seed=0,1", "nonsense", "task=nope", "train.steps=-1"])
def test_overrides_are_checked_before_anything_is_measured(override: str) -> None:
    with pytest.raises(ConfigError):
        measure(1, 1, [override], ["training"])


def test_the_file_is_written_before_the_table_is_shown(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise OSError("nobody reads")

    monkeypatch.setattr(benchmark, "measure", lambda *_: report)
    monkeypatch.setattr(benchmark, "table", fail)
    assert run_script(monkeypatch, "--json", str(tmp_path / "report.json")) == 1
    assert json.loads((tmp_path / "report.json").read_text())["rounds"] == report.rounds
