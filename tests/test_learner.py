"""What a run on pairs of a person's own is warned of before it starts."""

from pathlib import Path

import pytest

from conftest import TINY, pairs_files
from lookback import config, fonts, launcher
from lookback.learner import Learner, doubts


def told(folder: Path, *overrides: str) -> list[str]:
    typed = ["task=pairs", *TINY, *pairs_files(folder), "train.epochs=null", *overrides]
    loaded = config.build(launcher.compose("train", typed))
    return doubts(Learner(loaded).task, loaded)


def test_a_training_of_some_hundred_steps_is_not_doubted(tmp_path: Path) -> None:
    assert told(tmp_path, "train.steps=200") == []


def test_few_steps_and_patience_that_cannot_act_are_told(tmp_path: Path) -> None:
    assert told(tmp_path, "train.steps=50", "train.patience=5") == [
        "50 steps may be too few, some hundred are usual: raise train.epochs, or lower data.batch_size",
        "train.patience=5 cannot stop a training of 50 steps: "
        "validations come every 10 steps (train.validate_every)",
    ]
    assert told(tmp_path, "train.steps=200", "train.patience=5") == []


def test_lengths_that_no_pair_has_are_told(tmp_path: Path) -> None:
    [line] = told(tmp_path, "train.steps=200", "evaluate.lengths=[5,99,4,98]")
    assert line == "no pair to test on has a source of 99, 98 symbols (evaluate.lengths)"


def test_letters_that_no_font_has_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "unshown", lambda texts: list("甲乙丙丁戊己庚辛壬"))
    [line] = told(tmp_path, "train.steps=200")
    assert line.startswith("no font here has 甲 乙 丙 丁 戊 己 庚 辛 and others: pictures show boxes there (")


def test_drawn_strings_are_never_doubted() -> None:
    loaded = config.build(launcher.compose("train", [*TINY, "train.steps=3", "train.patience=1"]))
    assert doubts(Learner(loaded).task, loaded) == []
