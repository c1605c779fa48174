"""What all claims share: verdicts and cells by pencil and paper, the plan, resuming, the report, and each yaml."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import write_run
from lookback import bench, claim_report, command_line, compare, examine, launcher, nodes, plots, results
from lookback.bench import Bench, RunError, StoppedError
from lookback.claims import base
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Check, Claim, Numbers
from lookback.comparison import Plan
from lookback.console import SteadyConsole
from lookback.launcher import Typed
from lookback.plots import Plot
from lookback.schema import ConfigError

NAMES = launcher.choices("claim")


def check(holds: bool, core: bool) -> Check:
    return Check("so it is", holds, "found", "because", core=core)


@pytest.mark.parametrize(
    ("checks", "wanted"),
    [
        ([(True, True), (True, False)], HELD),
        ([(True, True), (False, False)], IN_PART),
        ([(False, True), (True, False)], NOT_HERE),
        ([(True, True), (False, True), (True, False)], NOT_HERE),
        ([(False, False), (False, False)], IN_PART),
    ],
)
def test_a_verdict_follows_from_its_checks(checks: list[tuple[bool, bool]], wanted: str) -> None:
    assert base.verdict([check(*one) for one in checks]) == wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([], "-"),
        ([0.5], "0.500"),
        ([1.0, 2.0, 3.0], "2.000±2.484"),  # t of 2 degrees, 4.3027, by 1 / sqrt(3)
        ([None, 700.0], "1 of 2"),
        ([None, None], "0 of 2"),
        ([100.0, 200.0], "150±635"),  # t of 1 degree, 12.706, by 70.71 / sqrt(2)
        ([2e-7, 4e-7], "3.0e-07"),
        ([2e6, 4e6], "3.0e+06"),
        ([1323.0], "1,323"),  # counted
        ([0.0, 0.0, 0.0], "0.000±.000"),
        ([20.0, 20.0], "20.00±.00"),
    ],
)
def test_a_cell_is_the_mean_with_its_interval_or_how_many_there_are(values: base.Values, wanted: str) -> None:
    assert base.cell(values) == wanted


@pytest.mark.parametrize(
    ("values", "others", "wanted"),
    [
        ([1.0, 2.0, 3.0], [11.0, 12.0, 13.5], True),
        ([1.0, 2.0, 3.0], [11.0, 12.0, 3.5], False),  # the interval is wider than the mean difference
        ([11.0, 12.0, 13.5], [1.0, 2.0, 3.0], False),
        ([1.0, 2.0, None], [11.0, 12.0, 13.5], False),  # not reached is not lower
        ([1.0, 2.0, 3.0], [None, None, None], True),  # nor is what nobody reached
        ([1.0, 2.0, 3.0], [None, None, 13.0], True),
        ([1.0, 2.0, 3.0], [None, None, 2.0], False),
        ([None, None], [None, None], False),
        ([5.0], [7.0], False),  # one seed has no interval
    ],
)
def test_lower_means_that_the_paired_interval_says_so(
    values: base.Values, others: base.Values, wanted: bool
) -> None:
    assert base.below(values, others)[0] is wanted


def test_a_table_has_a_row_a_condition_and_a_column_a_measure_that_any_has() -> None:
    numbers: Numbers = {"one": {"a": [1.5]}, "two": {"b": [2.25], "a": [3.5]}}
    sheet = base.table("model", numbers)
    assert sheet.headings == ["model", "a", "b"]
    assert sheet.rows == [["one", "1.500", "-"], ["two", "3.500", "2.250"]]


def test_lines_and_bars_are_drawn_where_the_numbers_are() -> None:
    lines = Plot({"a": {1.0: [0.2, 0.4], 3.0: [0.5]}}, "length", "exact match", shaded=(1, 2), share=True)
    bars = Plot({"a": {"x": [1.0], "y": [3.0]}, "b": {"x": [2.0], "y": [5.0]}}, "heads", "steps")
    left, right = plots.draw([lines, bars]).axes
    assert left.lines[0].get_xydata().tolist() == [[1.0, pytest.approx(0.3)], [3.0, 0.5]]  # type: ignore[union-attr]
    assert [bar.get_height() for bar in right.patches] == [1.0, 3.0, 2.0, 5.0]  # type: ignore[attr-defined]
    assert [text.get_text() for text in right.get_xticklabels()] == ["x", "y"]
    assert left.lines[0].get_color() == right.patches[0].get_facecolor()[:3]


# The yaml files


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_has_all_its_words_and_trains_what_there_is(name: str) -> None:
    text = (launcher.CONFIGS / "claim" / f"{name}.yaml").read_text(encoding="utf-8")
    first = text.splitlines()[0]
    assert first.endswith(f": src/lookback/claims/{name}.py")
    claim = nodes.build_node("claim", launcher.compose(f"claim/{name}")["claim"], Claim)
    assert isinstance(claim, Claim)
    assert claim.sentence.endswith(".")
    assert "lesson" in claim.lesson
    assert claim.setup.endswith(".")
    for quick in (False, True):
        settings = examine.ClaimsSettings(claims=[name], quick=quick, seeds=None, reuse=True)
        planned = examine.plan({**vars(settings)}, Typed("claims", ())).claims[0]
        if planned.plan:
            assert len(planned.plan.settings.seeds) >= (2 if quick else 3)


def test_all_claims_are_asked_for_unless_some_are() -> None:
    assert sorted(launcher.compose("claims")["claims"]) == NAMES


# The plan


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["claims=[no_such]"], "claims = no_such: no such claim; choose from: "),
        (["claims=[heads,heads]"], "claims = heads: every claim counts once"),
        (["claims=[]"], "claims = []: must be a list of at least 1 item"),
        (["quick=perhaps"], "quick = perhaps: must be true or false"),
        (["seeds=[-1]"], "seeds.0 = -1: must be greater than or equal to 0"),
        (["quik=true"], "quik = True: no such key; the nearest is quick"),
    ],
)
def test_what_was_typed_wrong_is_told_before_anything_runs(
    typed: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    assert command_line.launch(examine.run, "claims", [*typed, f"hydra.run.dir={folder}"], examine.plan) == 2
    assert words in capsys.readouterr().err
    assert not folder.exists()


def test_seeds_and_the_launcher_reach_the_trainings() -> None:
    typed = Typed("claims", ("hydra/launcher=basic", "hydra.run.dir=x", "seeds=[3,4]"))
    settings = {"claims": ["heads"], "quick": True, "seeds": [3, 4], "reuse": False}
    [planned] = examine.plan(settings, typed).claims
    assert planned.plan is not None
    assert planned.plan.settings.seeds == [3, 4]
    assert planned.plan.settings.reuse is False
    assert "hydra/launcher=basic" in planned.plan.typed.overrides
    assert not any(text.startswith("hydra.run.dir") for text in planned.plan.typed.overrides)


def test_numbers_belong_to_code_settings_and_seeds() -> None:
    def digest(**changes: Any) -> str:
        settings = {"claims": ["heads"], "quick": True, "seeds": None, "reuse": True} | changes
        return examine.plan(settings, Typed("claims", ())).claims[0].digest

    first = digest()
    assert first == digest()
    assert len({first, digest(quick=False), digest(seeds=[3, 4]), digest(claims=["bottleneck"])}) == 4


# Running, by a claim that is measured at once


class Fake(Claim):
    sentence, lesson, setup = "Two is more than one.", "first lesson, nowhere", "It is counted | twice."
    found = (2.0, 3.0)
    asked = 0

    def measure(self, bench: Bench) -> Numbers:
        Fake.asked += 1
        return {"one": {"size": list(self.found)}, "none": {"size": [None, None]}}

    def checks(self, numbers: Numbers) -> list[Check]:
        least = min(base.known(numbers["one"]["size"]))
        return [Check("the least is 2 or more", least >= 2, f"{least:g} | found", "it is one", core=True)]

    def plots(self, numbers: Numbers) -> list[Plot]:
        return [Plot({"one": {"x": base.known(numbers["one"]["size"])}}, "place", "size")]

    def notes(self, numbers: Numbers) -> list[str]:
        return ["A note."]


class Breaks(Fake):
    error: Exception = RunError("heads_1 seed 0: failed: it fell")

    def measure(self, bench: Bench) -> Numbers:
        raise self.error


def asked_for(*claims: tuple[str, Claim], reuse: bool = True) -> examine.ClaimsPlan:
    settings = examine.ClaimsSettings(claims=[name for name, _ in claims], quick=True, seeds=None, reuse=reuse)
    planned = [examine.Planned(name, claim, None, f"digest of {name}") for name, claim in claims]
    return examine.ClaimsPlan(settings, Typed("claims", ("quick=true",)), planned)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Fake, "asked", 0)


def test_a_report_has_sentence_rule_numbers_figure_and_verdict(tmp_path: Path) -> None:
    assert examine.run(asked_for(("two", Fake())), tmp_path / "r", False) == 0
    text = (tmp_path / "r/report.md").read_text(encoding="utf-8")
    for words in (
        "python scripts/claims.py quick=true",
        "| [two](#two): Two is more than one. | **held** | 1 of 1 |",
        "**Two is more than one.** (first lesson, nowhere)",
        "It is counted | twice.",
        "Verdict: **held**.",
        "| *core*: the least is 2 or more | yes | 2 \\| found |",
        "![two](two/figure.png)",
        "| one | 2.500±6.353 |",  # 12.706 x 0.7071 / sqrt(2)
        "| none | 0 of 2 |",
        "- A note.",
        "Measured on: processor",
    ):
        assert words in text, words
    assert (tmp_path / "r/two/figure.png").stat().st_size > 0


def test_a_check_that_fails_tells_the_likely_reason_in_report_and_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fake, "found", (1.0, 3.0))
    assert examine.run(asked_for(("two", Fake())), tmp_path / "r", False) == 0
    text = (tmp_path / "r/report.md").read_text(encoding="utf-8")
    assert "| *core*: the least is 2 or more | no | 1 \\| found. Likely reason: it is one |" in text
    assert "**did not hold here**" in text
    assert (
        "two: not so that the least is 2 or more (1 | found); likely because it is one" in capsys.readouterr().out
    )


def test_numbers_that_are_there_are_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert examine.run(asked_for(("two", Fake())), tmp_path / "r", False) == 0
    assert Fake.asked == 1
    other = tmp_path / "runs/claims/later"
    (tmp_path / "runs/claims").mkdir(parents=True)
    (tmp_path / "r").rename(tmp_path / "runs/claims/earlier")
    assert examine.run(asked_for(("two", Fake())), other, False) == 0
    assert Fake.asked == 1
    assert "numbers of runs/claims/earlier/two" in capsys.readouterr().out.replace("\n", "")
    assert (other / "two/claim.json").exists()
    assert examine.run(asked_for(("two", Fake()), reuse=False), tmp_path / "fresh", False) == 0
    assert Fake.asked == 2


@pytest.mark.parametrize(
    "kept", ["", "{", "[]", '{"digest": "another", "numbers": {}}', '{"digest": "digest of two"}']
)
def test_numbers_that_cannot_be_read_or_are_of_other_settings_are_measured_again(tmp_path: Path, kept: str) -> None:
    (tmp_path / "r/two").mkdir(parents=True)
    (tmp_path / "r/two/claim.json").write_text(kept)
    assert examine.run(asked_for(("two", Fake())), tmp_path / "r", False) == 0
    assert Fake.asked == 1
    assert json.loads((tmp_path / "r/two/claim.json").read_text())["verdict"] == HELD


def test_a_claim_that_cannot_be_examined_is_told_and_the_next_one_is_examined(tmp_path: Path) -> None:
    assert examine.run(asked_for(("first", Breaks()), ("two", Fake())), tmp_path / "r", False) == 1
    text = (tmp_path / "r/report.md").read_text(encoding="utf-8")
    assert "**not examined: heads_1 seed 0: failed: it fell**" in text
    assert "| [two](#two): Two is more than one. | **held** | 1 of 1 |" in text
    assert not (tmp_path / "r/first/claim.json").exists()


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Breaks, "error", StoppedError(130))
    assert examine.run(asked_for(("two", Fake()), ("then", Breaks())), tmp_path / "r", False) == 130
    assert "the same command goes on" in capsys.readouterr().out
    assert examine.run(asked_for(("two", Fake()), ("then", Fake())), tmp_path / "r", False) == 0
    assert Fake.asked == 2
    assert "[then](#then)" in (tmp_path / "r/report.md").read_text(encoding="utf-8")


# The bench


def plan_of() -> Plan:
    found = bench.make_plan("claim_heads_quick", ["seeds=[0]"])
    assert [entry.name for entry in found.entries] == ["heads_1", "heads_4"]
    return found


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        ("", None),
        ("failed: NonFiniteLossError: loss is not finite at step 7: nan", None),
        ("failed: OSError: no space", RunError),
        ("unfinished: running", RunError),
    ],
)
def test_a_bench_hands_back_runs_and_a_loss_that_is_not_finite_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str, error: type[Exception] | None
) -> None:
    plan = plan_of()
    write_run(tmp_path / "good", exact_match={8: 0.75})
    good = results.read(tmp_path / "good", "heads_4")
    bad = (
        results.Result("heads_1", tmp_path, good.raw, {}, [], problem)
        if problem
        else results.read(tmp_path / "good", "heads_1")
    )
    monkeypatch.setattr(compare, "train", lambda *_: ([bad, good], 0))
    place = Bench(tmp_path, True, plan, SteadyConsole())
    if error:
        with pytest.raises(error, match="heads_1 seed 0: "):
            place.train()
        return
    runs = place.train()
    assert {name: [bench.exact_match(run, 8) for run in found] for name, found in runs.items()} == {
        "heads_1": [0.0 if problem else 0.75],
        "heads_4": [0.75],
    }


def test_a_bench_that_is_told_to_stop_says_with_which_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "train", lambda *_: ([], 143))
    with pytest.raises(StoppedError) as found:
        Bench(tmp_path, True, plan_of(), SteadyConsole()).train()
    assert found.value.code == 143


def test_an_experiment_that_is_no_plan_is_refused() -> None:
    with pytest.raises(ConfigError, match="seeds"):
        bench.make_plan("claim_heads", ["seeds=[0,0]"])


def test_steps_to_99_are_those_of_the_first_validation_there(tmp_path: Path) -> None:
    write_run(tmp_path / "r", exact_match={8: 1.0}, validations=[(50, 0.5, 1.0), (100, 0.99, 2.0), (150, 1.0, 3.0)])
    assert bench.steps_to_99(results.read(tmp_path / "r")) == 100.0
    write_run(tmp_path / "s", exact_match={8: 0.98}, validations=[(50, 0.5, 1.0), (100, 0.98, 2.0)])
    assert bench.steps_to_99(results.read(tmp_path / "s")) is None


def test_the_verdicts_are_a_table_with_the_number_of_checks() -> None:
    numbers: Numbers = {"one": {"size": [2.0, 3.0]}}
    done = [
        claim_report.Examined("two", Fake(), numbers, 1.0),
        claim_report.Examined("b", Fake(), {}, 0.0, "not examined: x"),
    ]
    assert claim_report.verdicts(done)[2:] == [
        "| [two](#two): Two is more than one. | **held** | 1 of 1 |",
        "| [b](#b): Two is more than one. | **not examined: x** | - |",
    ]


# The whole way


@pytest.mark.slow
def test_a_claim_is_tried_from_the_command_line_and_again_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["claims=[causal]", "quick=true", "hydra/launcher=basic", f"hydra.run.dir={tmp_path / 'r'}"]
    for _ in range(2):
        assert command_line.launch(examine.run, "claims", typed, examine.plan) == 0
    told = capsys.readouterr().out
    assert told.count("of training") == 4  # two models, two seeds, once
    text = (tmp_path / "r/report.md").read_text(encoding="utf-8")
    assert "These are the quick experiments" in text
    assert "| *core*: with the mask, exact match decoded freely is 0.95 or more, in every seed | yes |" in text
    assert (tmp_path / "r/causal/figure.png").exists()
