"""Files from strangers: nothing in them runs, steers a terminal, or becomes part of a page."""

import json
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import TINY
from lookback import (
    checkpoint,
    command_line,
    compare,
    comparison,
    experiment,
    explain,
    look,
    run_folder,
    score_file,
)

WORDS = [
    "<script>alert(1)</script>",
    "</script><img/src=x/onerror=alert(2)>",
    "$\\frac{1}{0}$",
    "a|b",
    "\x1b[2J\x1b]0;title\x07",
    "[red]x[/red]",
    "[/]",
    "&lt;b&gt;",
    "`x`",
    "[l](javascript:alert(3))",
    "%s%n",
    "{{7*7}}",
    "${oc.env:HOME}",
    "\u202eevil",
    "=1+1",
    "<eos>",
    "<unk>",
]
STEERING = ("\x1b", "\x07", "\u202e", "\x9b")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on pairs of hostile words; its file is beside it."""
    folder = tmp_path_factory.mktemp("hostile")
    lines = [f"{one} {other}\t{other} {one}\n" for one, other in zip(WORDS, WORDS[1:] + WORDS[:1], strict=True)]
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    typed = ["task=pairs", *TINY, f"task.train={folder / 'pairs.tsv'}", "task.split=0.2", "task.source_unit=word"]
    typed += ["task.target_unit=word", "train.epochs=null", "evaluate.lengths=null", "board.probe_lengths=[2]"]
    assert command_line.launch(experiment.run, "train", [*typed, f"hydra.run.dir={folder / 'run'}"]) == 0
    return folder


def harmless(text: str) -> None:
    for sign in STEERING:
        assert sign not in text, f"{sign!r} reaches the terminal"


def test_a_training_on_hostile_words_shows_them_and_obeys_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{word} x\t{word} y\n" for word in WORDS), encoding="utf-8")
    typed = ["task=pairs", *TINY, f"task.train={tmp_path / 'pairs.tsv'}", "task.split=0.3", "task.source_unit=word"]
    typed += [
        "task.target_unit=word",
        "evaluate.lengths=null",
        "train.steps=3",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    assert command_line.launch(experiment.run, "train", typed) == 0
    shown = capsys.readouterr()
    harmless(shown.out + shown.err)
    assert "wanted" in shown.out


@pytest.mark.parametrize("source", [f"{one} x" for one in WORDS] + ["nothing known"])
def test_looking_at_a_hostile_string_is_safe(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    assert look.main([str(hostile / "run"), "--source", source, "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    harmless(shown.out + shown.err)
    page = Scripts()
    page.feed((tmp_path / "explorer.html").read_text(encoding="utf-8"))
    assert not any("alert(1)</script>" in script for script in page.scripts)
    assert page.handlers == []
    assert "img" not in page.tags
    assert page.tags.count("script") == len(page.scripts)


class Scripts(HTMLParser):
    """What a browser would run of a page: its scripts, and attributes that are handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and self.cdata_elem == "script":
            self.scripts.append(data)


def test_explaining_and_evaluating_are_safe(
    hostile: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, file = str(hostile / "run"), str(hostile / "pairs.tsv")
    for word in WORDS:
        assert explain.main([run, "--source", f"{word} x"]) == 0
    assert score_file.main([run, file, "--json", str(tmp_path / "out.json")]) == 0
    shown = capfd.readouterr()
    harmless(shown.out + shown.err)
    assert len(json.loads((tmp_path / "out.json").read_text())["outputs"]) == len(WORDS)


def test_failures_and_the_board_s_texts_are_markdown_in_which_words_are_words(hostile: Path) -> None:
    text = (hostile / "run" / "failures" / "failures.md").read_text(encoding="utf-8")
    harmless(text)
    assert "<script>" not in text
    assert "](javascript" not in text
    read = EventAccumulator(str(hostile / "run"))
    read.Reload()
    texts = [tag for tag in read.Tags()["tensors"] if tag.endswith("text_summary")]
    assert len(texts) == 2
    for tag in texts:
        for event in read.Tensors(tag):
            told = event.tensor_proto.string_val[0].decode() if event.tensor_proto.string_val else ""
            harmless(told)
            assert "<script>" not in told
            assert "<img" not in told


class Command:
    """A pickle that touches a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


@pytest.mark.parametrize("name", ["last.pt", "best.pt", "previous.pt", "steps/00000024.pt"])
@pytest.mark.parametrize("form", ["pickle", "torch", "inside"])
def test_a_checkpoint_that_would_run_code_is_refused_wherever_it_is(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, form: str
) -> None:
    folder, hacked = Path(shutil.copytree(tiny_run, tmp_path / "run")), tmp_path / "hacked"
    path = folder / "checkpoints" / name
    if form == "pickle":
        path.write_bytes(pickle.dumps(Command(hacked)))
    elif form == "torch":
        torch.save({"format": 1, "model": Command(hacked)}, path)
    else:
        whole = path.with_suffix(".new")
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(whole, "w") as new:
            for entry in old.namelist():
                data = pickle.dumps(Command(hacked), 2) if entry.endswith("data.pkl") else old.read(entry)
                new.writestr(entry, data)
        whole.replace(path)
    which: int | str = int(path.stem) if name.startswith("steps") else path.stem
    with pytest.raises(checkpoint.CheckpointError):
        experiment.load(folder, which)
    command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=26"])
    look.main([str(folder), "--source", "abc", "--output", str(tmp_path)])
    harmless(capsys.readouterr().out)
    assert not hacked.exists()


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "os.system", "command": "touch hacked"},
        {"_target_": "builtins.exec", "code": "1"},
        {"_target_": "lookback.checkpoint.load", "path": "x"},
        {"_target_": "lookback.tasks.base.Task"},
        {"_target_": "lookback.tasks.copy.os.system"},
        {"_target_": ["os.system"]},
        {"_target_": "lookback"},
        {"_target_": "lookback.launcher.hydra.utils.call"},
    ],
)
@pytest.mark.parametrize("place", ["task", "model", "positions"])
def test_only_classes_of_this_package_are_made_of_a_configuration(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], node: dict[str, Any], place: str
) -> None:
    folder = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    for which in ("last", "best"):
        path = run_folder.checkpoint_path(folder, which)
        content = checkpoint.load(path)
        raw = content["config"]
        if place == "positions":
            raw["model"]["positions"] = node
        else:
            raw[place] = node
        checkpoint.save(path, content)
    with pytest.raises((checkpoint.CheckpointError, ValueError)) as error:
        experiment.load(folder)
    assert "_target_" in str(error.value)
    assert look.main([str(folder), "--source", "abc", "--output", str(tmp_path)]) != 0
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert not (tmp_path / "hacked").exists()
    assert not Path("hacked").exists()


def test_the_names_and_notes_of_a_stranger_s_run_are_shown_and_obeyed_nowhere(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (0, 1):
        folder = Path(shutil.copytree(tiny_run, tmp_path / f"run{number}"))
        summary = json.loads((folder / "summary.json").read_text())
        evil = {"model": "\x1b[2J[red]<script>alert(1)</script>|", "reason": "\x1b]0;x\x07", "code_version": "[/]"}
        (folder / "summary.json").write_text(json.dumps(summary | evil))
    typed = [f"runs=[{tmp_path / 'run0'},{tmp_path / 'run1'}]", "hydra.run.dir=out"]
    command_line.launch(compare.run, "compare", typed, build=comparison.plan)
    shown = capsys.readouterr()
    harmless(shown.out + shown.err)
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    harmless(table)
    assert re.search(r"(?<!`)<script>", table) is None
