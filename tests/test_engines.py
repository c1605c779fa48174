"""Comparisons and sweeps by each launcher: the results of the serial one, and what becomes of jobs that die."""

import csv
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY, pairs_files
from lookback import checkpoint, command_line, experiment, launcher, results
from lookback.launcher import Typed
from test_compare import RNN, SMALL, models
from test_compare import TINY as TINY_MODEL

SCRIPTS = Path(__file__).parents[1] / "scripts"
PLUGINS = {
    "joblib": "hydra_joblib_launcher",
    "submitit_local": "hydra_submitit_launcher",
    "ray": "hydra_ray_launcher",
}
ENGINES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            find_spec(f"hydra_plugins.{plugin}") is None,
            reason=f"{plugin} is not installed: pip install '.[ray,slurm]'",
        ),
    )
    for name, plugin in PLUGINS.items()
]
COMPARED = [*SMALL, models(RNN, TINY_MODEL), "seeds=[0,1]", "reuse=false"]
TIMED = ("seconds", "per_second", "memory", "folder", "machine")


@pytest.fixture(autouse=True)
def _one_ray_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """A Ray program joins any cluster of the machine that it finds, and stopping one stops all."""
    if "ray" not in request.node.name:
        yield
        return
    with (Path(tempfile.gettempdir()) / "lookback-tests-ray.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(script: str, *arguments: str, here: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
    )


def rows(folder: Path) -> list[dict[str, str]]:
    """The results, but for times and memory."""
    with (folder / "results.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return [{key: value for key, value in row.items() if not any(word in key for word in TIMED)} for row in found]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.load(folder / "checkpoints" / "best.pt")["model"]
    return found


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two models and two seeds, one run after another."""
    here = tmp_path_factory.mktemp("serial")
    done = run("compare.py", *COMPARED, "hydra/launcher=basic", "hydra.run.dir=out", here=here)
    assert done.returncode == 0, done.stderr
    return here / "out"


def check(serial: Path, found: Path) -> None:
    assert rows(found) == rows(serial)
    for name in ("rnn/seed0", "rnn/seed1", "tiny/seed0", "tiny/seed1"):
        ours, theirs = weights(found / name), weights(serial / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[key]) for key, value in ours.items())


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_comparison_by_each_launcher_has_the_results_of_the_serial_one(
    serial: Path, tmp_path: Path, engine: str
) -> None:
    done = run("compare.py", *COMPARED, f"hydra/launcher={engine}", "hydra.run.dir=out", here=tmp_path)
    assert done.returncode == 0, done.stderr
    check(serial, tmp_path / "out")


@pytest.fixture
def cluster() -> Iterator[None]:
    """A Ray cluster that is running, as `ray start` makes it."""
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    started = subprocess.run(
        [*ray, "start", "--head", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=120,
    )
    assert started.returncode == 0, started.stderr
    yield
    subprocess.run([*ray, "stop", "--force"], capture_output=True, check=False, env=env, timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("hydra_plugins.hydra_ray_launcher") is None, reason="pip install '.[ray]'")
@pytest.mark.usefixtures("cluster")
def test_a_comparison_on_a_running_ray_cluster_has_the_results_of_the_serial_one(
    serial: Path, tmp_path: Path
) -> None:
    done = run("compare.py", *COMPARED, "hydra/launcher=ray_cluster", "hydra.run.dir=out", here=tmp_path)
    assert done.returncode == 0, done.stderr
    check(serial, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failed_job_of_a_sweep_leaves_the_others_and_is_listed_with_its_reason(
    tmp_path: Path, engine: str
) -> None:
    rates = "train.learning_rate=1e30,0.003"
    typed = [*TINY, "train.steps=4", "board.images_every=0", rates, "seed=1,2"]
    done = run("train.py", "-m", *typed, f"hydra/launcher={engine}", "hydra.sweep.dir=sweep", here=tmp_path)
    assert done.returncode == 1
    assert "4 jobs under sweep, 2 failed" in done.stdout
    told = [line for line in done.stderr.splitlines() if line.startswith("lookback: ")]
    start = "lookback: job {} (train.learning_rate=1e+30 seed={}) failed: NonFiniteLossError: loss is not finite"
    assert [line.split(" at step")[0] for line in told] == [start.format(0, 1), start.format(1, 2)]
    found = [results.read_summary(tmp_path / "sweep" / str(at)) for at in range(4)]
    assert [one["status"] for one in found] == ["failed", "failed", "finished", "finished"]
    assert [one["seed"] for one in found] == [1, 2, 1, 2]


DYING = """
import json, os, sys
from pathlib import Path
from lookback.launcher import Job, Typed, run_jobs

def work(raw, folder):
    folder.mkdir(parents=True, exist_ok=True)
    if raw["seed"] == 1:
        os.kill(os.getpid(), 9)
    if raw["seed"] == 2:
        raise OSError("disk")
    (folder / "done").touch()
    return raw["seed"]

if __name__ == "__main__":
    jobs = [Job((f"seed={seed}",), str(seed)) for seed in range(4)]
    outcomes = run_jobs(Typed("train", (f"hydra/launcher={sys.argv[1]}",)), Path("sweep").absolute(), jobs, work)
    Path("outcomes.json").write_text(json.dumps([[one.code, one.error] for one in outcomes]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_that_is_killed_is_listed_and_the_others_are_done(tmp_path: Path, engine: str) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    done = subprocess.run(
        [sys.executable, "dying.py", engine],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
    )
    assert done.returncode == 0, done.stderr
    first, killed, failed, last = json.loads((tmp_path / "outcomes.json").read_text())
    assert (first, last) == ([0, ""], [3, ""])
    assert failed == [1, "OSError: disk"]
    assert killed[0] == 1
    assert killed[1]
    assert {path.parent.name for path in (tmp_path / "sweep").glob("*/done")} == {"0", "3"}


# ------------------------------------------------------------------------------------------- what needs no engine


def test_a_stopped_sweep_goes_on_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["-m", *TINY, "seed=1,2,3", "train.steps=6", "board.images_every=0", f"hydra.sweep.dir={tmp_path}"]
    begun: list[int] = []
    train = experiment._run

    def stop_the_second(this: Any, resume: bool, stop: Any) -> int:
        begun.append(this.config.seed)
        if len(begun) == 2:
            stop.signal = 2
        return train(this, resume, stop)

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "_run", stop_the_second)
        assert command_line.launch(experiment.run, "train", typed, work=experiment.work) == 130
    assert begun == [1, 2]
    assert command_line.launch(experiment.run, "train", typed, work=experiment.work) == 0
    assert [results.read_summary(tmp_path / str(at))["status"] for at in range(3)] == ["finished"] * 3
    assert not (tmp_path / command_line.STOP_FILE).exists()
    other = [text.replace("steps=6", "steps=7") for text in typed]
    assert command_line.launch(experiment.run, "train", other, work=experiment.work) == 1  # another sweep is there


@pytest.mark.parametrize(("name", "extra"), [("ray", "ray"), ("ray_cluster", "ray"), ("slurm", "slurm")])
def test_a_launcher_that_is_not_installed_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, extra: str
) -> None:
    monkeypatch.setattr("lookback.overrides.launchers", lambda: ["basic", "joblib"])
    assert command_line.launch(experiment.run, "train", ["-m", "seed=1,2", f"hydra/launcher={name}"]) == 2
    assert capsys.readouterr().err == (
        f"lookback: hydra/launcher = {name}: is not installed: pip install 'lookback[{extra}]'\n"
    )


def test_an_unknown_launcher_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.launch(experiment.run, "train", ["-m", "seed=1,2", "hydra/launcher=jobllib"]) == 2
    assert len(capsys.readouterr().err.splitlines()) <= 3


@pytest.mark.skipif(find_spec("hydra_plugins.hydra_submitit_launcher") is None, reason="pip install '.[slurm]'")
def test_the_config_for_slurm_is_complete() -> None:
    with launcher._sweeping(Typed("compare", ("hydra/launcher=slurm", "hydra.launcher.partition=short")), None) as (
        _,
        node,
    ):
        assert node.hydra.launcher._target_.endswith(".SlurmLauncher")
        assert (node.hydra.launcher.cpus_per_task, node.hydra.launcher.partition) == (2, "short")


def test_a_run_under_joblib_is_found_among_the_launchers() -> None:
    assert {"basic", "joblib"} <= set(launcher.launchers())


@pytest.mark.slow
@pytest.mark.parametrize("chdir", ["false", "true"])
def test_a_sweep_side_by_side_finds_files_from_where_it_was_typed(tmp_path: Path, chdir: str) -> None:
    files = pairs_files(tmp_path)
    relative = [text.replace(f"{tmp_path}/", "./") for text in files]
    assert any("=./train.tsv" in text for text in relative)
    typed = ["task=pairs", *TINY, *relative, "train.steps=3", "board.images_every=0", "seed=1,2"]
    more = ["hydra/launcher=joblib", f"hydra.job.chdir={chdir}", "hydra.sweep.dir=sweep"]
    done = run("train.py", "-m", *typed, *more, here=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "version_base" not in done.stderr
    for at in (0, 1):
        assert results.read_summary(tmp_path / "sweep" / str(at))["status"] == "finished"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep", "train.tsv", "valid.tsv"]
