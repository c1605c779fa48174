"""Composing, and jobs run by Hydra's launchers."""

from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from lookback import command_line, launcher
from lookback.config import Config
from lookback.launcher import Job, Outcome, Typed, quoted, run_jobs

BASIC = "hydra/launcher=basic"


class Recorder:
    """Stands where a job's training would; remembers what it was given."""

    def __init__(self, codes: tuple[int, ...] = ()) -> None:
        self.calls: list[tuple[dict[str, Any], Path]] = []
        self.codes = codes

    def __call__(self, raw: dict[str, Any], folder: Path) -> int:
        self.calls.append((raw, folder))
        assert folder.is_dir()
        return self.codes[len(self.calls) - 1] if self.codes else 0


def test_what_was_typed_and_the_job_s_own_overrides_reach_each_job_in_its_folder(tmp_path: Path) -> None:
    typed = Typed("train", (BASIC, "hydra.job.name=mine", "task=copy", "train.steps=7", "seed=1"))
    jobs = [
        Job(("model=rnn", "seed=3", "model.d_model=18"), "rnn/seed3"),
        Job(("model=transformer", "seed=5", "train.steps=9"), "transformer/seed5"),
    ]
    record = Recorder((0, 4))
    assert run_jobs(typed, tmp_path / "sweep", jobs, record) == [Outcome(0), Outcome(4)]
    first, second = record.calls
    assert [folder for _, folder in record.calls] == [
        tmp_path / "sweep" / "rnn" / "seed3",
        tmp_path / "sweep" / "transformer" / "seed5",
    ]
    assert first[0] == launcher.compose("train", [*typed.overrides, *jobs[0].overrides])
    assert second[0] == launcher.compose("train", [*typed.overrides, *jobs[1].overrides])
    assert (first[0]["seed"], first[0]["train"]["steps"], first[0]["model"]["d_model"]) == (3, 7, 18)
    assert (second[0]["seed"], second[0]["train"]["steps"]) == (5, 9)
    assert all(raw["task"]["_target_"].endswith("Copy") for raw, _ in record.calls)
    assert list(tmp_path.iterdir()) == [tmp_path / "sweep"]


def test_a_job_that_raises_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    def run(raw: dict[str, Any], folder: Path) -> int:
        if raw["seed"] == 3:
            raise OSError("disk full")
        return int(raw["seed"])

    jobs = [Job((f"seed={seed}",), f"{seed}") for seed in (2, 3, 4)]
    outcomes = run_jobs(Typed("train", (BASIC,)), tmp_path, jobs, run)
    assert outcomes == [Outcome(2), Outcome(1, "OSError: disk full"), Outcome(4)]


def test_an_interrupt_is_not_taken_for_a_job_s_failure(tmp_path: Path) -> None:
    def run(raw: dict[str, Any], folder: Path) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(Typed("train", (BASIC,)), tmp_path, [Job((), "a"), Job((), "b")], run)


def test_folders_may_have_any_name(tmp_path: Path) -> None:
    names = ["two words", "it's", 'say "x"', "k=v, #1 [a]", "{b} 李", "$x"]
    record = Recorder()
    folder = tmp_path / "/".join(names)
    outcomes = run_jobs(Typed("train", (BASIC,)), folder, [Job((), f"{name}/job") for name in names], record)
    assert outcomes == [Outcome(0)] * 6
    assert [folder for _, folder in record.calls] == [folder / name / "job" for name in names]


def test_a_quoted_text_is_that_text_whatever_it_holds() -> None:
    texts = ["", "plain", "two words", "it's", '"x"', "k=v, #1 [a", "}{", "${seed}", "a ${x} b", "\\'", "null", "7"]
    found = launcher.compose("train", [f"+extra.text{n}={quoted(text)}" for n, text in enumerate(texts)])
    assert list(found["extra"].values()) == texts


def test_the_global_state_of_a_program_around_comes_back(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "app.yaml").write_text("key: 5\n")
    with hydra.initialize_config_dir(str(tmp_path / "other"), version_base="1.3"):
        run_jobs(Typed("train", (BASIC,)), tmp_path / "sweep", [Job((), "a")], Recorder())
        assert hydra.compose("app").key == 5
    assert not GlobalHydra.instance().is_initialized()
    assert HydraConfig.instance().cfg is None


def test_jobs_may_be_started_inside_a_running_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = Recorder()
    seen = []

    def outer(loaded: Config, folder: Path, resume: bool) -> int:
        before = (GlobalHydra.instance().hydra, HydraConfig.get().runtime.output_dir)
        typed = Typed("train", tuple(HydraConfig.get().overrides.task))
        run_jobs(typed, folder / "inner", [Job(("train.steps=8",), "job")], record)
        seen.append(before == (GlobalHydra.instance().hydra, HydraConfig.get().runtime.output_dir))
        return 0

    assert command_line.launch(outer, "train", ["seed=6", "hydra.run.dir=outer"]) == 0
    assert seen == [True]
    [(raw, folder)] = record.calls
    assert (raw["seed"], raw["train"]["steps"]) == (6, 8)
    assert folder == tmp_path / "outer" / "inner" / "job"


def test_the_state_comes_back_after_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "app.yaml").write_text("key: 5\n")
    with hydra.initialize_config_dir(str(tmp_path / "other"), version_base="1.3"):
        with pytest.raises(hydra.errors.HydraException):
            launcher.compose("train", ["no_such_key=1"])
        assert hydra.compose("app").key == 5


def test_typed_overrides_come_before_those_that_are_added() -> None:
    typed = Typed("train", ("seed=1", "train.steps=7"))
    found = typed.compose("seed=2")
    assert (found["seed"], found["train"]["steps"]) == (2, 7)
    assert "resume" not in found
    assert "hydra" not in found


def test_a_span_of_lengths_is_written_short_and_composed_as_numbers() -> None:
    raw = launcher.compose("train", ["evaluate.lengths=${lengths:41,44}"])
    assert raw["evaluate"]["lengths"] == [41, 42, 43, 44]
    assert launcher.between(7, 7) == [7]


@pytest.mark.parametrize("span", ["44,41", "41", "a,44", "1.5,3", "1,2,3"])
def test_a_span_that_is_none_is_refused_in_one_line(span: str, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["experiment=smoke", f"evaluate.lengths=${{lengths:{span}}}"]
    assert command_line.launch(lambda *_: 0, "train", typed) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("lookback: command line: ")
    assert "lengths must be two whole numbers, the lower one first, but are" in line


def test_a_span_past_all_sense_is_refused_and_not_counted_out() -> None:
    with pytest.raises(ValueError, match="lengths must be at most 100,000 apart, but are 1 and 99999999999"):
        launcher.between(1, 99999999999)


def test_a_span_reaches_the_jobs_of_a_sweep_as_numbers(tmp_path: Path) -> None:
    record = Recorder()
    typed = Typed("train", (BASIC, "evaluate.lengths=${lengths:2,4}"))
    run_jobs(typed, tmp_path, [Job(("seed=3",), "a"), Job(("evaluate.lengths=${lengths:5,6}",), "b")], record)
    assert [raw["evaluate"]["lengths"] for raw, _ in record.calls] == [[2, 3, 4], [5, 6]]
