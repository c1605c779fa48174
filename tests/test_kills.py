"""Kill -9 at random moments: the run ends with the bits of the uninterrupted one, and nothing is left lying."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import TINY
from lookback import checkpoint, results

KILLS = 50
DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch.utils.tensorboard
from lookback import command_line, config, experiment, launcher, run_folder
from lookback.board import Board

def begin(folder):
    arguments = [f"resume={folder}"] if run_folder.has_begun(folder) else [*sys.argv[3:], f"hydra.run.dir={folder}"]
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
        try:
            code = command_line.launch(experiment.run, "train", arguments)
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child

def survived(child, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0, f"the run ended by itself with status {status}"
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.WIFEXITED(os.waitpid(child, 0)[1])  # it may have ended meanwhile

here, kills = Path(sys.argv[1]), int(sys.argv[2])
config.build(launcher.compose('train', sys.argv[3:]))  # what takes time at the first call of a process
started = time.monotonic()
assert survived(begin(here / "whole"), 600)
whole, moments, chance, number = time.monotonic() - started, [], random.Random(7), 0
while len(moments) < kills and number < kills:
    number += 1
    while not survived(begin(here / f"killed{number}"), chance.uniform(0, whole)):
        line = next(iter((here / f"killed{number}").glob("metrics.jsonl")), None)
        moments.append(line.read_text().count("train/loss") if line else -1)
print(json.dumps({"runs": number, "moments": moments}))
"""


def logged(folder: Path) -> list[dict[str, float]]:
    """All that a run logged, but for times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("train/tokens_per_second", "train/seconds")
    return [{tag: value for tag, value in line.items() if tag not in timed} for line in lines]


def summed_up(folder: Path) -> dict[str, Any]:
    """Its summary, but for times and memory."""
    timed = ("train_seconds", "tokens_per_second", "decoding_tokens_per_second", "peak_memory_mib")
    return {key: value for key, value in results.read_summary(folder).items() if key not in timed}


@pytest.mark.slow
def test_fifty_kills_at_random_moments_lose_no_bit_and_leave_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), str(KILLS), *TINY, "board.snapshots_every=5"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["moments"]) >= KILLS
    whole = tmp_path / "whole"
    assert len(list(tmp_path.iterdir())) == 1 + told["runs"]
    for number in range(1, told["runs"] + 1):
        folder = tmp_path / f"killed{number}"
        for path in sorted((whole / "checkpoints").rglob("*.pt")):
            ours, theirs = (
                checkpoint.load(folder / path.relative_to(whole))["model"],
                checkpoint.load(path)["model"],
            )
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
        assert logged(folder) == logged(whole)
        assert summed_up(folder) == summed_up(whole)
        files = [{path.relative_to(one) for path in one.rglob("*")} for one in (folder, whole)]
        here, there = ({path for path in found if "tfevents" not in path.name} for found in files)
        assert here == there
        read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        read.Reload()
        assert [point.step for point in read.Scalars("train/loss")] == list(range(1, 25))
