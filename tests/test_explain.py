"""The prompt as it is shipped, and the command that fills it with a model's own numbers."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from lookback import explain
from lookback.explain import BEGIN, END, TEMPLATE, filled
from lookback.lesson import scaled_dot_product_attention
from test_subjects import write_weights

ROOT = Path(__file__).parents[1]
PROMPT = TEMPLATE.read_text(encoding="utf-8")
NUMBER = r"-?\d+(?:\.\d+)?"


def called(*arguments: object) -> tuple[int, str, str]:
    """Call the command in this process: its exit code, and what it printed to both streams."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = explain.main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def printed(*arguments: object) -> str:
    """What a call prints that succeeds."""
    code, out, err = called(*arguments)
    assert (code, err) == (0, "")
    return out


def refused(*arguments: object) -> tuple[int, str]:
    """The exit code and the one line of a call that fails."""
    code, out, err = called(*arguments)
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("lookback: ")
    return code, line.removeprefix("lookback: ")


# --------------------------------------------------------------------------------------------- the plain prompt


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(NUMBER, text)]


def example() -> str:
    return PROMPT[PROMPT.index(BEGIN) : PROMPT.index(END)]


def test_the_numbers_of_the_example_are_those_of_the_lessons_formula() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in example().splitlines()
        if line.startswith("| `")
    ]
    assert [row[0] for row in rows] == ["`a`", "`b`", "`c`"]
    query = np.array([numbers(re.findall(r"q = \(.*\)", example())[0])])
    keys, values = (np.array([numbers(row[at]) for row in rows]) for at in (1, 5))
    products, scores, weights = (np.array([float(row[at]) for row in rows]) for at in (2, 3, 4))
    np.testing.assert_array_equal((query @ keys.T)[0], products)
    np.testing.assert_array_equal(products / np.sqrt(query.shape[1]), scores)
    output, expected = scaled_dot_product_attention(query, keys, values)
    np.testing.assert_array_equal(expected[0].round(3), weights)
    [said] = re.findall(rf"\) = \(({NUMBER}), ({NUMBER})\)", example())
    assert [float(number) for number in said] == output[0].round(3).tolist()
    sharper = scaled_dot_product_attention(query * np.sqrt(query.shape[1]), keys, values)[1]
    [without] = re.findall(r"Without scaling.*would be (.*):", example())
    assert numbers(without) == sharper[0].round(3).tolist()
    masked = scaled_dot_product_attention(query, keys, values, np.array([[True, True, False]]))[1]
    [hidden] = re.findall(r"hidden by a mask, they are (.*)\.", example())
    assert numbers(hidden) == masked[0].round(3).tolist()


def test_the_steps_of_its_softmax_are_right() -> None:
    [line] = re.findall(r"- Softmax: (.*);", example())
    powers = dict(re.findall(rf"e\^(\d) = ({NUMBER})", line))
    assert {power: f"{np.exp(float(power)):.3f}" for power in "12"} | {"0": "1"} == powers
    [total] = re.findall(rf"sum to ({NUMBER})", line)
    assert float(total) == round(sum(np.exp([0.0, 1.0, 2.0])), 3)


def test_the_prompt_covers_what_the_lessons_teach() -> None:
    text = " ".join(PROMPT.split())
    for word in ("query", "key", "value", "sqrt(d_k)", "oftmax", "eighted sum", "ask", "Heads", "data base"):
        assert word in text
    assert "softmax(Q K^T / sqrt(d_k)) V" in text
    assert "## What not to claim" in PROMPT
    assert "## Before you answer, check" in PROMPT


def test_one_place_makes_room_for_other_numbers() -> None:
    assert PROMPT.count(BEGIN) == PROMPT.count(END) == 1
    before, after = PROMPT.split(BEGIN)[0], PROMPT.split(END)[1]
    assert filled("new") == f"{before}{BEGIN}\n\nnew\n\n{END}{after}"
    assert len(before) > 1000
    assert len(after) > 1000


def test_the_prompt_is_packed_where_the_command_looks_for_it() -> None:
    assert '"outputs" = "lookback/outputs"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert TEMPLATE == ROOT / "outputs" / "prompt-attention-explainer.md"


# -------------------------------------------------------------------------------------------------- the command


def test_a_trained_run_fills_the_prompt(tiny_run: Path) -> None:
    text = printed(tiny_run, "--source", "abc")
    assert text.startswith(PROMPT.split(BEGIN)[0])
    assert text.endswith(PROMPT.split(END)[1])
    assert "- Source: `abc`\n- Right answer: `cba`\n" in text
    assert "- Model: `transformer seed 0`, with its weights of step" in text
    assert "d_model 12, 3 heads, d_k = 12 / 3 = 4, positions: `sinusoidal`.\n" in text
    assert "made up" not in text[text.index(BEGIN) : text.index(END)]


def test_without_a_string_a_held_out_one_is_read(tiny_run: Path) -> None:
    [source] = re.findall("- Source: `(.*)`", printed(tiny_run))
    assert source.isalpha()


def test_the_head_that_learned_the_task_is_explained_unless_another_is_asked_for(
    tiny_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    summary = json.loads((run / "summary.json").read_text())
    summary["learned_by"] = {"head": "cross/layer1/head2", "since_step": 1400}
    summary["alignment"]["cross/layer1/head2"]["largest"] = 0.953
    (run / "summary.json").write_text(json.dumps(summary))
    said = "because it has learned the task (since step 1,400): on validation strings, its weight is largest where "
    head = "- Head: `cross/layer1/head2`, "
    assert f"{head}{said}the answer stands in 95% of rows.\n" in printed(run, "--source", "abc")
    other = printed(run, "--source", "abc", "--place", "decoder_self/layer0/head1")
    assert "- Head: `decoder_self/layer0/head1`, because it was asked for.\n" in other


@pytest.mark.parametrize("learned", [{}, {"head": "cross/layer7/head0", "since_step": None}, None, "x"])
def test_without_such_a_head_it_is_the_clearest(tiny_run: Path, tmp_path: Path, learned: object) -> None:
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    summary = json.loads((run / "summary.json").read_text())
    summary["learned_by"] = learned
    summary["alignment"]["cross/layer7/head0"] = {"largest": 1.0}
    (run / "summary.json").write_text(json.dumps(summary))
    assert ", because it is the clearest of cross-attention: " in printed(run, "--source", "abc")
    (run / "summary.json").unlink()
    assert ", because it is the clearest of cross-attention: " in printed(run, "--source", "abc")


def test_what_a_terminal_could_take_for_its_own_is_printed_as_it_is(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = "[bold]x[/] :smile: " + 200 * "wide "
    monkeypatch.setattr(explain, "numbers", lambda _: strange)
    assert f"\n\n{strange}\n\n" in printed(tiny_run, "--source", "abc")


def test_the_prompt_goes_into_a_file(tiny_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    assert printed(tiny_run, "--source", "abc", "--output", path) == f"prompt   {path}\n"
    assert path.read_text(encoding="utf-8") == printed(tiny_run, "--source", "abc")
    assert [found.name for found in tmp_path.iterdir()] == ["prompt.md"]


def test_an_rnn_with_attention_is_explained_by_its_weights(tmp_path: Path) -> None:
    write_weights(tmp_path, "best", model="rnn_luong")
    text = printed(tmp_path, "--source", "abc")
    assert "It is no Transformer: its score is not q . k / sqrt(d_k) but `query . state`" in text


def test_what_cannot_be_explained_is_refused_in_one_line(tmp_path: Path) -> None:
    run = write_weights(tmp_path / "run", "best")
    code, line = refused(tmp_path / "none", "--source", "abc")
    assert (code, line.partition(": ")[2][:19]) == (1, "no run is there (ne")
    code, line = refused(run, "--source", "a|c")
    assert code == 2
    assert line.endswith(
        "must be made of the task's symbols, abcdefghijklmnopqrstuvwxyz, but is 'a|c' (unknown: '|')"
    )
    code, line = refused(run, "--source", "abc", "--place", "cross/layer0")
    assert code == 2
    assert "cross/layer0/head0 to head1), but is 'cross/layer0'" in line
    code, line = refused(run, "--source", "a" * 31)
    assert (code, line) == (2, "source must have at most 30 symbols to be explained, but has 31")
    code, line = refused(run, "--source", "a" * 12)
    assert code == 2
    assert "positions end at 13" in line
    code, line = refused(run, "--source", "abc", "--output", tmp_path)
    assert (code, line) == (2, f"--output must be a file, but {tmp_path} is a folder")
    for folder in (tmp_path / "new", tmp_path / "new" / "deep"):
        code, line = refused(run, "--source", "abc", "--output", folder / "prompt.md")
        assert (code, line) == (2, f"--output: no such folder: {folder}")
        assert not (tmp_path / "new").exists()
    code, line = refused(write_weights(tmp_path / "rnn", "best", model="rnn"), "--source", "abc")
    assert code == 2
    assert line.startswith("rnn seed 3 has no attention, so there is nothing to explain: ")


def test_the_script_works_from_another_folder_and_falls_silent_when_nobody_reads(tmp_path: Path) -> None:
    write_weights(tmp_path, "best")
    call = [sys.executable, str(ROOT / "scripts" / "explain.py"), ".", "--source", "abc"]
    closed = "import subprocess, sys; done = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE); "
    code = closed + "done.stdout.close(); sys.exit(done.wait())"
    done = subprocess.run(
        [sys.executable, "-c", code, *call],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
