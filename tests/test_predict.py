"""The commands predict.py and evaluate.py, on a run that writes words backwards."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import pairs_files, train
from lookback import checkpoint, explain, look, predict, predictor, score_file
from lookback.decode import Decoded
from lookback.models.base import Seq2Seq
from lookback.predictor import Predictor, Rules
from lookback.run_folder import checkpoint_path
from lookback.tokens import FIRST_SYMBOL

ROOT = Path(__file__).parents[1]
MORE = [
    "train.steps=null",
    "train.epochs=60",
    "train.validate_every=60",
    "train.learning_rate=0.02",
    "model.dropout=0.0",
    "model.d_model=24",
    "data.batch_size=4",
    "board.images_every=0",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of one task, and one of another, whose files are gone."""
    folder = tmp_path_factory.mktemp("pairs")
    own = pairs_files(folder)
    for seed in (0, 1):
        assert train(folder / f"run{seed}", "task=pairs", *own, *MORE, f"seed={seed}") == 0
    assert train(folder / "other", "task=pairs", *own, *MORE, "task.min_count=6") == 0
    for path in folder.glob("*.tsv"):
        path.unlink()
    return [folder / "run0", folder / "run1", folder / "other"]


Filter = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Filter:
    """Run predict.py in this process: exit code, what it wrote, its warnings."""

    def run(content: bytes, *arguments: object) -> tuple[int, bytes, str]:
        out = io.BytesIO()
        written = io.TextIOWrapper(out, write_through=True)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
            patch.setattr(sys, "stdout", written)
            code = predict.main(list(map(str, arguments)))
        return code, out.getvalue(), capfd.readouterr().err

    return run


WORDS = [b"cat", b"tract", b"t", b"orca", b"taco", b"ooo", b"carrot", b"a"]


@pytest.mark.parametrize("more", [[], ["--batch-size", 1], ["--batch-size", 3], ["--beam", 3, "--batch-size", 2]])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_every_line_gets_a_line_whatever_goes_together(
    runs: list[Path], answer: Filter, more: list[object], end: bytes
) -> None:
    same = ["--beam", 3] if "--beam" in more else []
    wanted = answer(b"\n".join(WORDS) + b"\n", runs[0], *same)[1]
    code, wrote, warnings = answer(end.join(WORDS), runs[0], *more)  # the last line has no end
    assert (code, wrote, warnings) == (0, wanted, "")
    assert wrote.count(b"\n") == len(WORDS)


def test_lines_that_cannot_be_read_keep_their_place(runs: list[Path], answer: Filter) -> None:
    plain = answer(b"cat\ntaco\n", runs[0])[1].splitlines()
    code, wrote, warnings = answer("\ufeffcat\n\n日本🚀cat\n".encode() + b"\xd2t\ntaco\n\n", runs[0])
    lines = wrote.splitlines()
    assert code == 0
    assert (lines[0], lines[1], lines[4], lines[5]) == (plain[0], b"", plain[1], b"")
    assert lines[2]
    assert lines[3]
    assert warnings.splitlines() == [
        "lookback: 4 symbols in 2 lines read as unknown, such as '日' '本' '🚀' '�'",
        "lookback: nothing to read in 2 lines; the output is empty there",
    ]


def test_no_line_at_all_is_no_line(runs: list[Path], answer: Filter) -> None:
    assert answer(b"", runs[0]) == (0, b"", "")
    assert answer(b"\n", runs[0])[1] == b"\n"


def test_several_targets_stand_in_one_line_with_falling_scores(runs: list[Path], answer: Filter) -> None:
    best = answer(b"cat\ntaco\n", runs[0], "--beam", 4)[1].decode().splitlines()
    code, wrote, _ = answer(b"cat\n\ntaco\n", runs[0], "--beam", 4, "--nbest", 3)
    lines = wrote.decode().splitlines()
    assert code == 0
    assert lines[1] == ""
    for line, first in zip((lines[0], lines[2]), best, strict=True):
        texts, scores = line.split("\t")[::2], [float(score) for score in line.split("\t")[1::2]]
        assert texts[0] == first
        assert len(set(texts)) == 3
        assert scores == sorted(scores, reverse=True)


def test_runs_together_are_another_model_and_must_share_their_symbols(runs: list[Path], answer: Filter) -> None:
    assert answer(b"cat\n", runs[0], runs[0])[1] == answer(b"cat\n", runs[0])[1]
    scored = ["--beam", 2, "--nbest", 2]
    one, both = (answer(b"cat\ntaco\n", *some, *scored)[1] for some in ([runs[0]], runs[:2]))
    assert one != both
    code, wrote, error = answer(b"cat\n", runs[0], runs[2])
    assert (code, wrote) == (2, b"")
    assert "must have the same symbols, in the same order, and units, but" in error


def test_maps_of_lines_are_saved(runs: list[Path], answer: Filter, tmp_path: Path) -> None:
    code, wrote, _ = answer(b"cat\n\norca\n", runs[0], "--attention", tmp_path / "maps.npz")
    arrays = np.load(tmp_path / "maps.npz")
    assert code == 0
    assert arrays["line1/read"].tolist() == ["<bos>", "c", "a", "t", "<eos>"]
    assert not any(name.startswith("line2/") for name in arrays)
    wanted = [word for word in wrote.decode().splitlines()[2].split(" ") if word]
    assert [symbol for symbol in arrays["line3/written"].tolist() if symbol != "<eos>"] == wanted
    rows = arrays["line3/cross/layer0"]
    assert rows.shape[1:] == (len(arrays["line3/written"]), 6)
    assert rows.sum(axis=-1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--nbest", "3", "--beam", "2"], 2, "nbest must not be above beam, but they are 3 and 2"),
        (["--beam", "2", "--length-penalty", "160"], 2, "--length-penalty must be 0 to 10, but is 160.0"),
        (["--beam", "2", "--length-penalty", "nan"], 2, "--length-penalty must be 0 to 10, but is nan"),
        (["--length-penalty", "0.5"], 2, "--length-penalty does nothing without --beam, but is 0.5"),
        (["--beam", "2", "--length-penalty", "-1"], 2, "--length-penalty must be 0 to 10, but is -1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    runs: list[Path], answer: Filter, arguments: list[str], code: int, line: str
) -> None:
    assert answer(b"cat\n", runs[0], *arguments) == (code, b"", f"lookback: {line}\n")


def test_a_folder_that_is_no_run_is_one_clean_line(answer: Filter, tmp_path: Path) -> None:
    code, wrote, error = answer(b"cat\n", tmp_path)
    assert (code, wrote, error.count("\n")) == (1, b"", 1)
    assert str(tmp_path) in error


def test_an_output_that_never_ends_is_cut_off_and_counted(runs: list[Path], answer: Filter) -> None:
    code, wrote, warnings = answer(b"cat\norca\n", runs[0], "--max-symbols", 1)
    assert code == 0
    assert all(len(line.split()) <= 1 for line in wrote.splitlines())
    assert "2 outputs did not end, cut off" in warnings


def test_so_many_symbols_are_written_and_an_output_of_as_many_has_ended(runs: list[Path], answer: Filter) -> None:
    whole = answer(b"cat\n", runs[0])[1]
    count = len(whole.split())
    code, wrote, warnings = answer(b"cat\n", runs[0], "--max-symbols", count)
    assert (code, wrote) == (0, whole)
    assert "cut off" not in warnings
    assert len(answer(b"cat\n", runs[0], "--max-symbols", count - 1)[1].split()) == count - 1


def test_several_targets_need_no_word_of_a_beam(runs: list[Path], answer: Filter) -> None:
    assert answer(b"cat\n", runs[0], "--nbest", 3)[:2] == answer(b"cat\n", runs[0], "--nbest", 3, "--beam", 3)[:2]


def test_a_pair_in_the_place_of_a_source_is_noticed(runs: list[Path], answer: Filter) -> None:
    assert "a tab in 2 lines: a line is a source alone" in answer(b"cat\tt a c\noat\nact\t\n", runs[0])[2]


def test_a_file_in_the_place_of_a_run_is_told_from_one(runs: list[Path], answer: Filter, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("cat\n")
    code, _, error = answer(b"", runs[0], tmp_path / "words.txt")
    assert code == 2
    assert f"words.txt is a file, not a run folder; lines are read from standard input: < {tmp_path}" in error


def test_text_of_controls_is_text(runs: list[Path], answer: Filter) -> None:
    code, wrote, warnings = answer(b"<eos>\n<pad>\n<bos>cat\n", runs[0])
    assert (code, wrote.count(b"\n")) == (0, 3)
    assert b"<" not in wrote  # nor is it ever written
    assert "read as unknown" in warnings


def test_the_output_is_utf_8_whatever_the_language(runs: list[Path]) -> None:
    environment = {**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    script = [sys.executable, str(ROOT / "scripts" / "predict.py"), str(runs[0])]
    done = subprocess.run(script, input="日\ncat\n".encode(), capture_output=True, env=environment, check=True)
    assert len(done.stdout.decode().splitlines()) == 2
    assert b"read as unknown" in done.stderr


def test_a_closed_output_is_one_clean_line(runs: list[Path]) -> None:
    command = f"echo cat | '{sys.executable}' scripts/predict.py '{runs[0]}' >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=ROOT, check=False, timeout=100)
    assert done.returncode == 2
    assert done.stderr == b"lookback: standard input and output must be open, but one of them is closed\n"


def test_a_reader_that_leaves_ends_it_without_a_word(runs: list[Path]) -> None:
    command = (
        f"yes cat | head -20000 | '{sys.executable}' scripts/predict.py '{runs[0]}' --batch-size 512 | head -1"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=ROOT, check=True, timeout=100)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == b""


def test_a_large_batch_reads_no_further_than_it_must(runs: list[Path]) -> None:
    read: list[int] = []

    def texts() -> Any:
        for number in range(3 * predictor.CHUNK_LINES):
            read.append(number)
            yield "cat"

    first = next(Predictor([runs[0]], "cpu").write(texts(), Rules(max_symbols=2)))
    assert len(first) == 1
    assert len(read) == predictor.CHUNK_LINES


def test_where_an_output_is_cut_off_depends_on_its_own_line_alone(
    tiny_run: Path, answer: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that never ends, and a task whose targets are as long as their sources: four times them, and EOS."""

    def endless(model: Seq2Seq, source: torch.Tensor, lengths: torch.Tensor, cap: int) -> Decoded:
        rows = torch.full((len(source), cap), FIRST_SYMBOL)
        return Decoded(rows, torch.zeros(len(source), dtype=torch.bool))

    monkeypatch.setattr(predictor, "greedy", endless)
    caps = {2: 100, 6: 100, 26: 128, 30: 128, 32: 256, 34: 256, 80: 512}
    content = b"".join(b"a" * length + b"\n" for length in caps)
    for size in (1, 3, 256):
        code, out, error = answer(content, tiny_run, "--batch-size", size)
        assert (code, error) == (0, "lookback: 7 outputs did not end, cut off\n")
        assert [len(line) for line in out.splitlines()] == list(caps.values())


@pytest.mark.parametrize("name", ["maps.npz", "maps.v1"])
def test_maps_go_where_they_were_asked_to_go(runs: list[Path], answer: Filter, tmp_path: Path, name: str) -> None:
    assert answer(b"cat\n", runs[0], "--attention", tmp_path / name)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == [name if name.endswith(".npz") else f"{name}.npz"]


def test_maps_that_cannot_be_written_are_refused_before_a_line_is_read(
    runs: list[Path], answer: Filter, tmp_path: Path
) -> None:
    (tmp_path / "taken.npz").mkdir()
    place = tmp_path / "none" / "maps.npz"
    assert answer(b"cat\n", runs[0], "--attention", place) == (
        2,
        b"",
        f"lookback: --attention: no such folder: {place.parent}\n",
    )
    code, out, error = answer(b"cat\n", runs[0], "--attention", tmp_path / "taken")
    assert (code, out, error.count("\n")) == (2, b"", 1)
    assert "--attention must be a file, but" in error


def test_a_run_before_its_first_validation_says_so(runs: list[Path], answer: Filter, tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "young")
    checkpoint_path(tmp_path / "young", "best").unlink()
    rule = "has no best weights yet, because its first validation is still to come"
    assert answer(b"cat\n", tmp_path / "young") == (1, b"", f"lookback: {tmp_path / 'young'}: the run {rule}\n")


# ------------------------------------------------------------------------------------------------- evaluate.py


def evaluated(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = score_file.main(list(map(str, arguments)))
    return code, *capfd.readouterr()


def test_a_file_is_scored_by_its_text(
    runs: list[Path], answer: Filter, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wrote = answer(b"cat\norca\ntaco\n", runs[0])[1].decode().splitlines()
    lines = [f"cat\t{wrote[0]}", f"orca\t{wrote[1]} t", "taco\tunknown o", f"cat\t{wrote[0]}"]
    (tmp_path / "test.tsv").write_text("\n".join(lines), encoding="utf-8")
    code, out, error = evaluated(capfd, runs[0], tmp_path / "test.tsv", "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert (code, error) == (0, "lookback: 1 symbol in 1 target that the run never writes, such as 'unknown'\n")
    assert (found["pairs"], found["exact_match"], found["word_error_rate"]) == (4, 0.5, 0.5)
    assert [one["right"] for one in found["outputs"]] == [True, False, False, True]
    assert [one["distance"] for one in found["outputs"]][:2] == [0, 1]
    assert found["by_length"]["3"]["pairs"] == 2
    assert "all       4   0.5000       0.5000" in out
    assert "unknown o" in out
    assert f"{wrote[1]} t" in out  # a space between words, also if each has one letter


def test_an_output_that_was_cut_off_is_wrong_even_if_all_is_there(
    runs: list[Path], answer: Filter, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = answer(b"cat\n", runs[0], "--max-symbols", 1)[1].decode().strip()
    (tmp_path / "test.tsv").write_text(f"cat\t{first}\n", encoding="utf-8")
    evaluated(capfd, runs[0], tmp_path / "test.tsv", "--max-symbols", 1, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["outputs"][0]["distance"], found["exact_match"]) == (0, 0.0)


def test_a_json_that_cannot_be_written_is_refused_before_anything_is_decoded(
    runs: list[Path], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "test.tsv").write_text("cat\tt a c\n", encoding="utf-8")
    code, out, error = evaluated(capfd, runs[0], tmp_path / "test.tsv", "--json", tmp_path)
    assert (code, out, error) == (2, "", f"lookback: --json must be a file, but {tmp_path} is a folder\n")


def test_a_bad_line_of_the_file_is_told_or_left_out(
    runs: list[Path], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "test.tsv").write_text("cat\tt a c\nno tab\n", encoding="utf-8")
    code, _, error = evaluated(capfd, runs[0], tmp_path / "test.tsv")
    assert (code, error) == (2, f"lookback: {tmp_path / 'test.tsv'}, line 2: must have one tab, but has none\n")
    code, out, error = evaluated(capfd, runs[0], tmp_path / "test.tsv", "--skip")
    assert code == 0
    assert "line 2 is left out" in error
    assert "all       1" in out


def test_what_a_file_holds_cannot_steer_the_terminal(
    runs: list[Path], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "test.tsv").write_text("c\x1b[31mt\t[bold]x \x1b]0;title\x07\n", encoding="utf-8")
    _, out, _ = evaluated(capfd, runs[0], tmp_path / "test.tsv")
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]x" in out.replace("\n", "")


def test_a_run_needs_only_its_folder(runs: list[Path], answer: Filter, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(runs[0], moved)
    assert checkpoint_path(moved, "best").exists()
    assert answer(b"cat\n", moved)[1] == answer(b"cat\n", runs[0])[1]


@pytest.mark.parametrize("count", ["-1", "1.5", "many", "99999999999999999999", "1000001"])
def test_a_count_that_is_none_is_refused(count: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        score_file.main(["run", "file", "--worst", count])
    assert f"--worst: must be a whole number from 1 to 1,000,000, but is {count}" in capfd.readouterr().err


# -------------------------------------------------------------------------------------- looking at such a run


def test_nothing_is_called_wrong_where_nobody_knows_the_answer(
    runs: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert explain.main([str(runs[0]), "--source", "coat"]) == 0
    text = capfd.readouterr().out
    assert "- Right answer: nobody knows it" in text
    assert "- Source: `coat`" in text
    assert "This is wrong" not in text
    assert "which is" not in next(line for line in text.splitlines() if line.startswith("- Output of the model"))


@pytest.mark.parametrize("command", [explain.main, look.main])
def test_without_the_files_a_string_must_be_given(
    runs: list[Path], capfd: pytest.CaptureFixture[str], command: Callable[[list[str]], int]
) -> None:
    assert command([str(runs[0])]) == 2
    assert capfd.readouterr().err.endswith("train.tsv: no such file; give a string with --source TEXT\n")


# ------------------------------------------------------------------------------------- limits, and what is counted


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose positions end at 12, marks included."""
    folder = tmp_path_factory.mktemp("short")
    positions = ["model/positions=learned", "model.positions.max_length=12"]
    assert train(folder / "run", "task=pairs", *pairs_files(folder), *MORE, *positions) == 0
    return folder / "run"


def test_a_line_is_too_long_from_the_first_symbol_on_that_has_no_place(short: Path, answer: Filter) -> None:
    code, wrote, warnings = answer(b"cat\n" + b"t" * 10 + b"\n" + b"t" * 11 + b"\noat\n", short)
    lines = wrote.split(b"\n")
    assert (code, len(lines)) == (0, 5)
    assert lines[2] == b""
    assert all(lines[at] for at in (0, 3))
    assert "1 line longer than the model can read; the output is empty there" in warnings


def test_unknown_symbols_are_counted_all_and_shown_each_once_and_five_at_most(
    runs: list[Path], answer: Filter
) -> None:
    warnings = answer("你好你吗\nzxy\ncat\nz7\n".encode(), runs[0])[2]
    assert "9 symbols in 3 lines read as unknown, such as '你' '好' '吗' 'z' 'x'" in warnings


def test_only_the_first_line_can_begin_with_a_byte_order_mark(runs: list[Path], answer: Filter) -> None:
    mark = b"\xef\xbb\xbf"
    _, wrote, warnings = answer(mark + b"cat\ncat\n" + mark + b"cat\n", runs[0])
    assert len(set(wrote.split(b"\n")[:2])) == 1
    assert r"1 symbol in 1 line read as unknown, such as '\ufeff'" in warnings


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("target_unit", "character", "task.target_unit is character, not word"),
        ("normalise", "NFC", "task.normalise is NFC, not none"),
    ],
)
def test_runs_that_read_differently_never_predict_together(
    runs: list[Path], tmp_path: Path, answer: Filter, name: str, value: str, told: str
) -> None:
    other = Path(shutil.copytree(runs[1], tmp_path / "run"))
    path = checkpoint_path(other, "best")
    content = checkpoint.load(path)
    content["config"]["task"][name] = value
    checkpoint.save(path, content)
    code, _, error = answer(b"cat\n", runs[0], other)
    assert code == 2
    assert told in error


def test_runs_of_two_tasks_with_the_same_symbols_never_predict_together(
    tiny_run: Path, tmp_path: Path, answer: Filter
) -> None:
    other = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    path = checkpoint_path(other, "best")
    content = checkpoint.load(path)
    content["config"]["task"]["_target_"] = "lookback.tasks.copy.Copy"
    checkpoint.save(path, content)
    code, _, error = answer(b"cat\n", tiny_run, other)
    assert code == 2
    assert "the task is Copy, not Reverse" in error


def test_maps_are_of_the_very_output_that_is_written(runs: list[Path], answer: Filter, tmp_path: Path) -> None:
    for more in ([], ["--beam", 3], ["--max-symbols", 2]):
        path = tmp_path / "maps.npz"
        wrote = answer(b"cat\ntract\n\norca\n", runs[0], "--attention", path, *more)[1].decode().splitlines()
        with np.load(path) as named:
            for number in (1, 2, 4):
                symbols = [symbol for symbol in named[f"line{number}/written"].tolist() if symbol != "<eos>"]
                assert " ".join(symbols) == wrote[number - 1]
            assert "line3/written" not in named


def test_a_word_for_the_unknown_in_a_corpus_is_right_where_it_is_wanted_and_wrong_for_what_is_unknown(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    (tmp_path / "t.tsv").write_text("".join(f"a{number % 9}\t<unk>\n" for number in range(90)), encoding="utf-8")
    (tmp_path / "v.tsv").write_text("a1\tfoo\na2\t<unk>\n", encoding="utf-8")
    typed = ["task=pairs", f"task.train={tmp_path / 't.tsv'}", f"task.valid={tmp_path / 'v.tsv'}", "train.steps=60"]
    more = ["task.target_unit=word", "evaluate.lengths=null", "train.learning_rate=0.01", "model.dropout=0.0"]
    assert train(folder, *typed, *more) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["overall"]["exact_match"] == 0.5
    [failure] = [json.loads(line) for line in (folder / "failures" / "failures.jsonl").read_text().splitlines()]
    assert failure["wanted"] == ["<<unk>>"] or failure["wanted"] == "<<unk>>"
