"""What disks and people do to a run folder: damaged, lost and unwritable files."""

import ctypes
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
import torch

from conftest import TINY, train
from lookback import checkpoint, command_line, experiment, results, run_folder
from test_experiment import losses, same_bits, stop_at

SCRIPT = Path(__file__).parents[1] / "scripts" / "train.py"


def resume(folder: Path, *overrides: str) -> int:
    return command_line.launch(experiment.run, "train", [f"resume={folder}", *overrides])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at step 17 of 24: saved at 7, 14 and 17, its best of step 10."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 16)
        assert train(folder) == 130
    return folder


def step_of(folder: Path, which: str) -> int:
    found: int = checkpoint.load(run_folder.checkpoint_path(folder, which))["trainer"]["step"]
    return found


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_a_run_keeps_its_last_two_savings(stopped: Path) -> None:
    assert [step_of(stopped, which) for which in ("last", "previous", "best")] == [17, 14, 10]


@pytest.mark.parametrize("damage", [cut, alter, empty, Path.unlink])
@pytest.mark.parametrize(("count", "from_step", "name"), [(1, 14, "previous.pt"), (2, 10, "best.pt")])
def test_a_damaged_saving_is_named_and_the_one_before_it_ends_with_the_same_bits(
    stopped: Path,
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Any,
    count: int,
    from_step: int,
    name: str,
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    for which in run_folder.RESUMABLE[:count]:
        damage(run_folder.checkpoint_path(folder, which))
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "save_last", None)  # nothing is written before the next step
        path, content = run_folder.load_last(folder)
    assert (path.name, content["trainer"]["step"]) == (name, from_step)
    line = capsys.readouterr().out
    assert str(run_folder.checkpoint_path(folder, "last")) in line
    assert f"going on from {name} before it" in line
    assert resume(folder) == 0
    assert same_bits(tiny_run, folder)
    assert same_bits(tiny_run, folder, "best")
    assert losses(folder) == losses(tiny_run)
    assert step_of(folder, "previous") == 21


def test_a_damaged_saving_is_put_aside_and_never_takes_the_place_of_a_good_one(
    stopped: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    last = run_folder.checkpoint_path(folder, "last")
    alter(last)
    damaged = last.read_bytes()
    _, content = run_folder.load_last(folder, lambda line: None)
    run_folder.save_last(folder, content)
    assert [step_of(folder, which) for which in ("last", "previous")] == [14, 14]
    assert last.with_suffix(".damaged").read_bytes() == damaged


def test_with_no_good_saving_left_the_last_one_is_named_and_nothing_changes(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    for which in run_folder.RESUMABLE:
        alter(run_folder.checkpoint_path(folder, which))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert resume(folder) == 1
    [line] = capsys.readouterr().err.splitlines()
    last = run_folder.checkpoint_path(folder, "last")
    assert line == f"lookback: {last}: damaged: its checksum is that of other contents"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_damaged_best_weights_are_named_and_without_them_the_best_is_seen_anew(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    best = run_folder.checkpoint_path(folder, "best")
    alter(best)
    assert resume(folder) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"lookback: {best}: damaged")
    assert f"remove {best.name} to go on without the best weights so far" in error
    best.unlink()
    assert resume(folder) == 0
    assert "is gone: which weights are best is seen anew from step 17 on" in capsys.readouterr().out
    assert results.read_summary(folder)["best_step"] in (20, 24)


def test_best_weights_lost_after_the_last_step_are_those_of_the_last_step(tiny_run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    run_folder.checkpoint_path(folder, "best").unlink()
    (folder / "summary.json").unlink()
    assert resume(folder) == 0
    assert results.read_summary(folder)["best_step"] == step_of(folder, "best") == 24


def started(folder: Path, most_bytes: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The script in a process whose files cannot grow beyond a size: what a full disk does, to root as well."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_disk_that_fills_up_ends_the_run_in_one_line_and_loses_nothing(
    stopped: Path, tiny_run: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    size = run_folder.checkpoint_path(folder, "last").stat().st_size
    done = started(folder, size // 2, f"resume={folder}")
    assert done.returncode == 1
    [*_, line] = done.stderr.splitlines()
    assert line.startswith("lookback: [Errno 27] File too large")
    assert "Traceback" not in done.stderr
    assert results.read_summary(folder)["status"] == "failed"
    assert [step_of(folder, which) for which in ("last", "previous", "best")] == [17, 14, 10]
    assert not list(folder.rglob("*partial"))
    assert resume(folder) == 0
    assert same_bits(tiny_run, folder)
    assert losses(folder) == losses(tiny_run)


def obey_permissions() -> None:
    """Let this process obey the permissions of folders, even as root: drop CAP_DAC_OVERRIDE."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP; others than root may not, and obey already


@pytest.mark.parametrize("kind", ["not writable", "a file", "no folder"])
def test_a_folder_that_cannot_be_written_is_one_line_and_nothing_is_trained(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "runs" / "one"
    if kind == "a file":
        folder.parent.write_text("not a folder")
    elif kind == "no folder":
        folder = Path("/proc/lookback/one")
    else:
        folder.parent.mkdir(mode=0o555)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *TINY, f"hydra.run.dir={folder}"],
        preexec_fn=obey_permissions,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("lookback: ")
    assert "step" not in done.stdout


def test_a_run_folder_that_became_read_only_is_one_line(stopped: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    for path in (folder, folder / "checkpoints"):
        path.chmod(0o555)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), f"resume={folder}"],
        preexec_fn=obey_permissions,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    for path in (folder, folder / "checkpoints"):
        path.chmod(0o755)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_that_goes_on_with_other_threads_says_so_and_counts_as_changed(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    last = run_folder.checkpoint_path(folder, "last")
    content = checkpoint.load(last)
    assert content["made_by"]["processes"] == 1
    content["made_by"]["threads"] += 3
    checkpoint.save(last, content)
    assert resume(folder) == 0
    threads = content["made_by"]["threads"]
    told = f"the last bits may not be those of a run that was never stopped: threads {threads}, now {threads - 3}"
    assert told in capsys.readouterr().out
    assert results.read_summary(folder)["changed"] is True


def test_a_run_that_goes_on_as_it_began_has_not_changed_and_names_its_libraries(
    stopped: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    assert resume(folder) == 0
    found = results.read_summary(folder)
    assert found["changed"] is False
    assert f"numpy {np.__version__}, hydra-core {hydra.__version__}" in found["machine"]["libraries"]
    assert (found["machine"]["torch"], found["seed"]) == (torch.__version__, 0)
    assert len(found["config_digest"]) == len(found["code_version"]) == 12
