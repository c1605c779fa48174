"""The command line: what a person types is checked before anything is made."""

import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra

from conftest import TINY, pairs_files, train
from lookback import command_line, experiment, launcher
from lookback.config import Config

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "train.py"


class Recorder:
    """Stands where the training would; remembers what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[Config, Path, bool]] = []

    def __call__(self, config: Config, folder: Path, resume: bool) -> int:
        self.calls.append((config, folder, resume))
        return 0


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(*arguments: str) -> tuple[int, Recorder]:
    recorder = Recorder()
    return command_line.launch(recorder, "train", arguments), recorder


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (["+model.d_modle=64"], ["model.d_modle = 64: no such key; the nearest is model.d_model"]),
        (["model.d_modle=64"], ["model.d_modle = 64: no such key; the nearest is model.d_model"]),
        (["++model.d_modle=64"], ["model.d_modle = 64: no such key; the nearest is model.d_model"]),
        (
            ["model=transfomer"],
            ["model = transfomer: no such choice; choose from: rnn, rnn_bahdanau, rnn_luong, transformer"],
        ),
        (["model.d_model=30", "model.num_heads=4"], ["but is 30 with num_heads 4"]),
        (["train.steps=-5"], ["train.steps = -5: must be greater than 0"]),
        (["train.learning_rate=fast"], ["train.learning_rate = fast: must be a number"]),
        (["seed=1e3"], ["seed = 1000.0: must be a whole number"]),
        (["model=null"], ["model: no such choice"]),
        (["model/positions=rotry"], ["model/positions = rotry: no such choice; choose from: alibi, learned"]),
        (["positions=rotary"], ["positions = rotary: no such key; the nearest is model/positions"]),
        (["+experiment=smoke"], ["experiment: is chosen in the defaults already"]),
        (["~train.steps"], ["train.steps: is missing"]),
        (["seed=0,1"], ["seed = 0,1: several values are a sweep: add -m"]),
        (["-m", "seed=0,x", "train.steps=1,-1"], ["seed = x", "train.steps = -1"]),
        (["seed"], ["seed: must read key=value"]),
        (["task.name=my data, v=2 #1"], ["must read key=value; put a value with spaces"]),
        (["train.steps=${nowhere}"], ["nowhere"]),
        (["hydra.nothing=1"], ["hydra.nothing"]),
        (["resume=nowhere"], ["nowhere/config.yaml: no such file"]),
        (["resume=one", "resume=two"], ["resume = one, two: must be one run folder"]),
        (["experiment=null"], ["experiment: no such choice"]),
        (["data.batch_size=0"], ["data.batch_size = 0: must be greater than 0"]),
        (["seed=18446744073709551616"], ["seed = 18446744073709551616: must be less than"]),
        (["steps=100"], ["steps = 100: no such key; the nearest is train.steps"]),
        (
            ["model.d_modle=64", "task=revers", "train.steps=-5", "seed=one"],
            ["4 problems", "model.d_modle = 64", "task = revers", "train.steps = -5", "seed = one"],
        ),
    ],
)
def test_a_wrong_command_line_is_told_in_full_and_leaves_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentences: list[str]
) -> None:
    code, recorder = launch(*arguments)
    error = capsys.readouterr().err
    assert code == 2
    assert recorder.calls == []
    assert error.startswith("lookback: ")
    assert "Traceback" not in error
    for sentence in sentences:
        assert sentence in error
    assert len(error.splitlines()) <= 10
    assert list(here.iterdir()) == []


def test_a_right_command_line_reaches_the_run_with_its_values(here: Path) -> None:
    code, recorder = launch("task=copy", "model/positions=rotary", "seed=1", "train.steps=7")
    assert code == 0
    [(config, folder, resume)] = recorder.calls
    assert config.seed == 1
    assert config.train.steps == 7
    assert config.raw["task"]["_target_"].endswith("Copy")
    assert config.raw["model"]["positions"]["_target_"].endswith("Rotary")
    assert not resume
    assert folder.parent == here / "runs" / "copy" / "transformer"
    assert len(folder.name.split("-")[-1]) == 6  # microseconds
    assert folder.is_dir()


@pytest.mark.parametrize("chdir", ["false", "true"])
def test_the_run_folder_is_where_the_user_says_from_where_she_types(here: Path, chdir: str) -> None:
    _, recorder = launch("hydra.run.dir='my runs, v=2 #1 李/one'", f"hydra.job.chdir={chdir}")
    os.chdir(here)
    assert recorder.calls[0][1] == here / "my runs, v=2 #1 李" / "one"


def test_a_sweep_runs_every_combination_each_in_its_folder(here: Path) -> None:
    code, recorder = launch("-m", "seed=3,4", "task=copy,sort", "hydra.sweep.dir=sweep")
    assert code == 0
    assert [(call[0].seed, call[0].raw["task"]["_target_"].rpartition(".")[2]) for call in recorder.calls] == [
        (3, "Copy"),
        (3, "Sort"),
        (4, "Copy"),
        (4, "Sort"),
    ]
    assert [call[1] for call in recorder.calls] == [here / "sweep" / str(number) for number in range(4)]


def test_the_flag_of_a_sweep_may_stand_anywhere_and_a_pattern_is_every_choice(here: Path) -> None:
    code, recorder = launch("task=glob(*or*)", "-m", "hydra.sweep.dir=sweep")
    assert code == 0
    assert [call[0].raw["task"]["_target_"].rpartition(".")[2] for call in recorder.calls] == [
        "CopyOrReverse",
        "Sort",
    ]


def test_resume_null_is_no_resume_and_plus_signs_change_nothing(here: Path, tiny_run: Path) -> None:
    for argument in ("resume=null", "resume="):
        assert launch(argument)[1].calls[0][2] is False
    assert launch(f"++resume={tiny_run}")[1].calls[0][2] is True


def test_one_failed_job_of_a_sweep_leaves_the_others_and_the_exit_code_tells(here: Path) -> None:
    seen = []

    def fail_on_three(config: Config, folder: Path, resume: bool) -> int:
        seen.append(config.seed)
        if config.seed == 3:
            raise OSError("disk")
        return 0

    assert command_line.launch(fail_on_three, "train", ["-m", "seed=3,4", "hydra.sweep.dir=sweep"]) == 1
    assert seen == [3, 4]
    assert not (here / "sweep" / "0").exists()


def test_hydra_of_another_program_is_left_as_it_was(here: Path) -> None:
    (here / "other").mkdir()
    (here / "other" / "app.yaml").write_text("key: 5\n")
    with hydra.initialize_config_dir(str(here / "other"), version_base="1.3"):
        for _ in range(3):
            assert launcher.compose("train", ["seed=9"])["seed"] == 9
        assert hydra.compose("app").key == 5
    assert not GlobalHydra.instance().is_initialized()


def test_the_command_line_can_be_called_again_and_again(here: Path) -> None:
    argv = list(sys.argv)
    for seed in range(3):
        code, recorder = launch(f"seed={seed}")
        assert (code, recorder.calls[0][0].seed) == (0, seed)
    assert sys.argv == argv


def test_resuming_takes_the_configuration_of_the_run(tiny_run: Path) -> None:
    _, recorder = launch(f"resume={tiny_run}", "train.steps=99", "board.images_every=0")
    [(config, folder, resume)] = recorder.calls
    assert (folder, resume) == (tiny_run, True)
    assert config.raw["model"]["d_model"] == 12
    assert (config.train.steps, config.board.images_every) == (99, 0)


def test_resuming_refuses_another_model_by_name(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, recorder = launch(f"resume={tiny_run}", "model.d_model=24", "seed=4", "train.stepz=9")
    error = capsys.readouterr().err
    assert code == 2
    assert recorder.calls == []
    assert "model.d_model = 24: cannot change when resuming" in error
    assert "seed = 4: cannot change when resuming" in error


def test_resuming_refuses_an_unknown_key(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = launch(f"resume={tiny_run}", "train.stepz=9")
    assert code == 2
    assert "train.stepz = 9: no such key; the nearest is train.steps" in capsys.readouterr().err


def test_ctrl_c_before_training_is_130(here: Path) -> None:
    def interrupted(config: Config, folder: Path, resume: bool) -> int:
        raise KeyboardInterrupt

    assert command_line.launch(interrupted, "train", []) == 130


def test_a_folder_with_a_run_is_not_written_over(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_run.rglob("*")}
    assert train(tiny_run) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in tiny_run.rglob("*")} == before


def script(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the script in this process; the exit code."""
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_help_teaches_with_examples_choices_and_settings(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    for part in (
        "python scripts/train.py task=copy seed=1",
        "model/positions: alibi, learned",
        "d_model: 64",
        "-m",
    ):
        assert part in shown
    assert list(here.iterdir()) == []


def test_the_script_exits_with_2_and_one_line_for_a_wrong_key(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(monkeypatch, "model.d_modle=64") == 2
    shown = capsys.readouterr()
    assert shown.err == "lookback: model.d_modle = 64: no such key; the nearest is model.d_model\n"
    assert shown.out == ""
    assert list(here.iterdir()) == []


def test_the_script_trains_from_any_folder_in_an_ascii_terminal_without_a_warning(here: Path) -> None:
    arguments = [*TINY, "model.num_layers=1", "board.probe_lengths=[3]", "train.steps=2", "hydra.run.dir='李'"]
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(SCRIPT), *arguments],
        cwd=here,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert (here / "李" / "summary.json").exists()
    assert [path.name for path in here.iterdir()] == ["李"]
    shown = done.stdout.decode("ascii")
    assert "run folder   '?'" in shown
    assert "--samples_per_plugin images=500" in shown


def test_the_experiment_is_what_the_script_calls() -> None:
    assert "from lookback.experiment import main" in SCRIPT.read_text(encoding="utf-8")
    assert callable(experiment.main)


def test_ctrl_c_ends_a_sweep(here: Path) -> None:
    seen = []

    def stopped(config: Config, folder: Path, resume: bool) -> int:
        seen.append(config.seed)
        return 130

    assert command_line.launch(stopped, "train", ["-m", "seed=3,4,5", "hydra.sweep.dir=sweep"]) == 130
    assert seen == [3]


def test_an_early_failure_takes_back_only_a_folder_of_its_own(here: Path) -> None:
    def fail(config: Config, folder: Path, resume: bool) -> int:
        raise OSError("disk")

    theirs = here / "theirs"
    theirs.mkdir()
    os.utime(theirs, (1, 1))
    time.sleep(0.05)
    for folder in ("theirs", "new/one"):
        assert command_line.launch(fail, "train", [f"hydra.run.dir={folder}"]) == 1
    assert theirs.is_dir()
    assert [path.name for path in (here / "new").iterdir()] == []


def test_what_cannot_be_read_and_what_is_wrong_are_told_together(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = launch("seed", "task.alphabet_size=1,2", "train.steps=-5", "model.d_model=30", "data.min_length=50")
    error = capsys.readouterr().err
    assert code == 2
    for part in ("seed: must read", "a sweep: add -m", "train.steps = -5", "is 30 with num_heads 4", "50 and 20"):
        assert part in error


def test_flags_cannot_be_used_when_resuming(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, recorder = launch("-m", f"resume={tiny_run}")
    assert (code, recorder.calls) == (2, [])
    assert "-m: cannot be used when resuming" in capsys.readouterr().err


def test_the_environment_is_left_as_it_was(here: Path) -> None:
    before = os.environ.get("HYDRA_FULL_ERROR", "0")
    launch("seed=1")
    assert os.environ["HYDRA_FULL_ERROR"] == before


def test_a_setting_cannot_be_removed_when_resuming(
    here: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, recorder = launch(f"resume={tiny_run}", "~evaluate.symbols")
    assert (code, recorder.calls) == (2, [])
    assert "evaluate.symbols: cannot be removed when resuming: give it a value" in capsys.readouterr().err


@pytest.mark.parametrize("sweep", [[], ["-m", "hydra.sweep.dir=sweep"]])
def test_a_relative_file_is_found_from_where_it_was_typed_though_hydra_changes_folders(
    here: Path, sweep: list[str]
) -> None:
    relative = [text.replace(f"{here}/", "") for text in pairs_files(here)]
    code, recorder = launch(*sweep, "task=pairs", *relative, "hydra.job.chdir=true", "hydra.run.dir=one")
    os.chdir(here)
    assert code == 0
    [(config, _, _)] = recorder.calls
    assert config.raw["task"]["train"] == str(here / "train.tsv")


@pytest.mark.parametrize("typed", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2"])
def test_a_sweeper_of_hydra_s_is_refused_for_it_would_do_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    code, recorder = launch("-m", "seed=1,2", typed)
    assert code == 2
    assert recorder.calls == []
    key, _, value = typed.partition("=")
    assert capsys.readouterr().err.startswith(f"lookback: {key} = {value}: does nothing here")
