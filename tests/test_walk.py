"""The walk through the lesson: what it computes, what it says, and the script as a person runs it."""

import io
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console

from lookback import walk
from lookback.walk_page import Screen
from lookback.walk_page import walk as show
from lookback.walk_parts import Facts, Grid, Page, Setting, Shades
from lookback.walk_words import CHINESE, ENGLISH, WORDS

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "lesson.py"
KEYS = ("k1", "k2", "k3", "k4", "k5")
CTRL_C = b"\x03"
NUMBERS = [f"{number}" for number in range(1, len(walk.STEPS) + 1)]
WIDE = ("小猫", "坐", "在", "软绵绵的", "垫子上")
LONG = ("incomprehensibilities",) * 12
LONG_WIDE = ("软绵绵的小猫咪喵喵",) * 12
SETTING = Setting(("a", "b", "c", "d", "e"), seed=1, d_model=6, dk=3, dv=7, n_heads=2)


def grids(page: Page) -> list[Grid]:
    return [part for row in page.parts for part in row if isinstance(part, Grid)]


def grid(page: Page, name: str) -> NDArray[np.floating]:
    return next(part.values for part in grids(page) if part.name == name)


def said(page: Page, key: str) -> dict[str, Any]:
    return next({**notice.values} for notice in page.notices if notice.key == key)


def lines(*typed: str, **more: str) -> list[str]:
    done = run(*typed, **more)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def run(*typed: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **more}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *typed],
        capture_output=True,
        text=True,
        encoding=environment["PYTHONIOENCODING"],
        check=False,
        env=environment,
    )


def drawn(language: str, setting: Setting, encoding: str = "utf-8", width: int = 80) -> str:
    """All that the walk prints."""
    stream = io.BytesIO()
    file = io.TextIOWrapper(stream, encoding=encoding, errors="replace", write_through=True)
    show(Console(file=file, width=width, highlight=False, emoji=False), walk.chosen([]), setting, language, False)
    return stream.getvalue().decode(encoding)


# What the steps compute


def test_softmax_shows_the_lessons_scores_the_right_weights_and_the_printed_ones() -> None:
    page = walk.softmax(SETTING)
    scores, raised, weights, printed = grids(page)[0].values
    assert scores.tolist() == [2.1, 0.3, 0.1, 0.8, 0.2]
    np.testing.assert_allclose(raised, [1, math.exp(-1.8), math.exp(-2), math.exp(-1.3), math.exp(-1.9)])
    assert weights.round(2).tolist() == [0.58, 0.10, 0.08, 0.16, 0.09]
    assert printed.tolist() == [0.52, 0.09, 0.07, 0.14, 0.08]
    assert said(page, "softmax.corrected") == {
        "total": pytest.approx(0.90),
        **dict(zip(KEYS, weights, strict=True)),
    }
    assert said(page, "softmax.sum") == {"total": pytest.approx(1), "rounded": pytest.approx(1.01)}
    assert said(page, "softmax.shift")["difference"] < 1e-12


def test_the_query_of_the_second_word_ends_where_torchs_attention_ends() -> None:
    page = walk.attention(SETTING)
    Q, K, V = (torch.from_numpy(grid(page, name)) for name in "QKV")
    assert (Q.shape, K.shape, V.shape) == ((5, 3), (5, 3), (5, 7))
    scored, mixed = (part.values for part in grids(page) if part.name == "")
    np.testing.assert_allclose(scored[:, 0], (K @ Q[1]).numpy())
    np.testing.assert_allclose(scored[:, 1], (K @ Q[1]).numpy() / math.sqrt(3))
    np.testing.assert_allclose(mixed[:-1, 0], torch.softmax(K @ Q[1] / math.sqrt(3), dim=0).numpy())
    np.testing.assert_allclose(mixed[-1], [1, said(page, "attention.sum")["first"]])
    expected = F.scaled_dot_product_attention(Q[None, 1:2], K[None], V[None])[0].numpy()
    np.testing.assert_allclose(grid(page, "output"), expected)
    np.testing.assert_allclose(mixed[-1, 1], expected[0, 0])
    found = said(page, "attention.match")
    assert found == {"query": "b", "key": "abcde"[mixed[:-1, 0].argmax()], "largest": mixed[:-1, 0].max()}


def test_variance_grows_with_the_width_unless_scaled_and_only_then_softmax_saturates() -> None:
    page = walk.scaling(SETTING)
    raw, scaled, largest_raw, largest_scaled, slope_raw, slope_scaled = grids(page)[0].values.T
    np.testing.assert_allclose(raw, [4, 16, 64, 256], rtol=0.1)
    np.testing.assert_allclose(scaled, 1, rtol=0.1)
    assert np.all(np.diff(largest_raw) > 0)
    assert largest_raw[-1] > 0.9
    assert np.ptp(largest_scaled) < 0.05
    assert np.all(np.diff(slope_raw) < 0)
    assert np.ptp(slope_scaled) < 0.005


def test_weight_times_the_rest_is_how_far_a_weight_moves_with_its_score() -> None:
    scores = torch.log(torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)).requires_grad_()
    torch.softmax(scores, dim=0)[1].backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad[1].item() == pytest.approx(0.25 * 0.75)


def test_the_sentences_weights_are_those_of_the_lessons_own_lines() -> None:
    rng = np.random.default_rng(42)
    X = rng.normal(0, 1, (6, 8))
    rng = np.random.default_rng(42)
    Q, K, V = (torch.from_numpy(X @ rng.normal(0, math.sqrt(2 / 12), (8, 4))) for _ in "QKV")
    page = walk.sentence(Setting())
    np.testing.assert_allclose(grid(page, "weights"), torch.softmax(Q @ K.T / 2, dim=-1).numpy())
    np.testing.assert_allclose(grid(page, "output"), (torch.softmax(Q @ K.T / 2, dim=-1) @ V).numpy())
    assert said(page, "sentence.rows")["difference"] < 1e-12
    columns = dict(zip(Setting().sentence, grid(page, "weights").sum(0), strict=True))
    assert said(page, "sentence.columns") == {"key": "on", "total": pytest.approx(columns["on"])}
    assert columns["on"] == max(columns.values())


def test_the_map_in_shades_is_that_of_the_table() -> None:
    page = walk.heatmap(SETTING)
    [[map_]] = page.parts
    assert isinstance(map_, Shades)
    weights = grid(walk.sentence(SETTING), "weights")
    np.testing.assert_array_equal(map_.weights, weights)
    shades = said(page, "heatmap.shades")
    quarters = [shades[name] for name in ("first", "second", "third", "largest")]
    np.testing.assert_allclose(quarters, weights.max() * np.array([0.25, 0.5, 0.75, 1]))
    found = said(page, "heatmap.largest")
    assert weights["abcde".index(found["query"]), "abcde".index(found["key"])] == weights.max()


def test_a_causal_mask_leaves_exact_zeros_above_the_diagonal_and_padding_in_its_column() -> None:
    page = walk.masks(SETTING)
    weights, padded = grid(page, "weights"), grid(page, "weights, padding")
    np.testing.assert_array_equal(grid(page, "mask"), np.tril(np.ones((5, 5))))
    assert np.all(weights[np.triu_indices(5, 1)] == 0)
    assert np.all(weights[np.tril_indices(5)] > 0)
    np.testing.assert_array_equal(weights[0], [1, 0, 0, 0, 0])
    np.testing.assert_allclose(weights.sum(-1), 1)
    np.testing.assert_array_equal(padded[:, -1], 0)
    np.testing.assert_allclose(padded.sum(-1), 1)
    assert np.all(padded[:, :-1] > 0)
    assert said(page, "masks.causal") == {"above": 0, "word": "a", "weight": 1}
    assert said(page, "masks.share")["difference"] < 1e-12
    assert said(page, "masks.padding") == {"word": "e", "column": 0}
    assert said(page, "masks.nowhere") == {"weight": 0, "output": 0}


def test_each_head_is_shown_and_is_what_it_would_be_alone() -> None:
    page = walk.heads(SETTING)
    maps = [grid(page, f"weights[0, {head}]") for head in range(2)]
    shaded = [part for row in page.parts for part in row if isinstance(part, Shades)]
    for map_, shades in zip(maps, shaded, strict=True):
        np.testing.assert_array_equal(map_, shades.weights)
    assert said(page, "heads.alone")["difference"] < 1e-12
    assert said(page, "heads.differ")["difference"] == np.abs(maps[0] - maps[1]).max() > 0.01
    assert page.values == {"width": 6, "heads": 2, "share": 3}
    largest = [notice.values["largest"] for notice in page.notices if notice.key == "heads.head"]
    assert largest == [map_.max() for map_ in maps]
    assert grid(page, "output[0]").shape == (5, 6)


def test_the_shapes_are_those_that_the_first_lesson_gives() -> None:
    [[facts]] = walk.shapes(SETTING).parts
    assert isinstance(facts, Facts)
    shapes = {name: shape for name, shape, _ in facts.rows}
    assert shapes == {
        "x": (2, 10, 64),
        "Wq, Wk, Wv, Wo": (64, 64),
        "x Wq": (2, 10, 64),
        "Q, K, V": (2, 4, 10, 16),
        "K^T": (2, 4, 16, 10),
        "Q K^T / sqrt(d_k)": (2, 4, 10, 10),
        "weights": (2, 4, 10, 10),
        "weights V": (2, 4, 10, 16),
        "concat": (2, 10, 64),
        "output": (2, 10, 64),
    }
    assert said(walk.shapes(SETTING), "shapes.same")["total"] == pytest.approx(1)


def test_the_axes_of_each_shape_are_as_many_as_its_sizes() -> None:
    [[facts]] = walk.shapes(SETTING).parts
    assert isinstance(facts, Facts)
    for words in WORDS.values():
        for name, shape, fact in facts.rows:
            assert not isinstance(fact, str)
            assert len(words[fact.key].split(", ")) == len(shape), name


def test_torchs_layer_with_the_same_weights_differs_by_rounding_only() -> None:
    page = walk.torch(SETTING)
    assert said(page, "torch.same")["difference"] < 1e-6
    [[facts]] = page.parts
    assert isinstance(facts, Facts)
    assert [row[:2] for row in facts.rows] == [
        ("output", (1, 5, 6)),
        ("weights", (1, 2, 5, 5)),
        ("output, causal", (1, 5, 6)),
        ("weights, causal", (1, 2, 5, 5)),
    ]


def test_what_is_said_of_torch_is_so() -> None:
    layer, x = torch.nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(1, 5, 6)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    _, mean = layer(x, x, x, attn_mask=hidden)
    _, each = layer(x, x, x, attn_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(mean, each.mean(dim=1))
    assert torch.all(each[..., hidden] == 0)


def test_a_step_gives_the_same_page_twice_and_another_with_another_seed() -> None:
    first, again, other = (walk.sentence(Setting(seed=seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(grid(first, "weights"), grid(again, "weights"))
    assert np.abs(grid(first, "weights") - grid(other, "weights")).max() > 0.01
    for step in (walk.attention, walk.scaling, walk.masks, walk.heads):
        first, again, other = (step(Setting(seed=seed)) for seed in (3, 3, 4))
        np.testing.assert_array_equal(grids(first)[-1].values, grids(again)[-1].values)
        assert np.abs(grids(first)[-1].values - grids(other)[-1].values).max() > 0.001, step


def test_sentences_that_cannot_be_walked_through_are_refused() -> None:
    rule = "sentence must have 2 to 12 words, with spaces between them, but has"
    for words in ((), ("one",), ("w",) * 13):
        with pytest.raises(ValueError, match=f"^{rule} {len(words)}: "):
            Setting(words)
    with pytest.raises(ValueError, match=r"^sentence must have no control characters, but is 'a \\x1b\[2J'$"):
        Setting(("a", "\x1b[2J"))
    for letter in ("\u202e", "\u2066", "\u200b", "\ufeff", "\ud800", "\x9b"):
        with pytest.raises(ValueError, match=r"^sentence must have no control characters, but is 'a \\"):
            Setting(("a", letter))
    assert Setting(("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "b")).sentence[1] == "b"
    with pytest.raises(ValueError, match=r"^seed must be 0 or more, but is -1$"):
        Setting(seed=-1)
    assert len(Setting(("w",) * 12).sentence) == 12


def test_steps_are_chosen_by_number_or_name() -> None:
    assert list(walk.chosen([])) == list(range(1, 10))
    assert walk.chosen(["masks", "2", "6"]) == {6: walk.masks, 2: walk.attention}
    for wrong in ("0", "10", "mask", ""):
        with pytest.raises(
            ValueError, match=rf"^step must be 1 to 9 or one of softmax, .*torch, but is '{wrong}'$"
        ):
            walk.chosen([wrong])


# What is said


def placeholders(text: str) -> set[tuple[str | None, str | None]]:
    return {(name, spec) for _, name, spec, _ in Formatter().parse(text) if name is not None}


def test_both_languages_say_the_same_with_the_same_values() -> None:
    assert list(ENGLISH) == list(CHINESE)
    for key, text in ENGLISH.items():
        assert placeholders(text) == placeholders(CHINESE[key]), key
        assert "\n".join(line.rstrip() for line in text.split("\n")) == text


def test_english_is_ascii_and_chinese_is_chinese() -> None:
    assert all(text.isascii() for text in ENGLISH.values())
    for key, text in CHINESE.items():
        axes_or_code = key == "shapes.matrix"
        assert axes_or_code or re.search("[\u4e00-\u9fff]", text), key
        assert not re.search("[\u4e00-\u9fff][,;:?!()]", text) or key.startswith("shapes."), key


def test_every_key_is_used_and_every_step_has_a_title() -> None:
    used = {"notice", "enter", "sum", "array", "shape"}
    for setting in (SETTING, Setting()):
        for step in walk.STEPS:
            page = step(setting)
            assert page.key == step.__name__
            used |= {f"{page.key}.title", f"{page.key}.shows", *(notice.key for notice in page.notices)}
            for part in (part for row in page.parts for part in row):
                labels = [part.heading, *(row[2] for row in part.rows)] if isinstance(part, Facts) else []
                labels += [*part.rows, *part.columns] if isinstance(part, Grid) else []
                used |= {label.key for label in labels if not isinstance(label, str)}
    assert used | {"torch.missing"} == set(ENGLISH)


@pytest.mark.parametrize("language", WORDS)
@pytest.mark.parametrize(
    "words", [Setting().sentence, WIDE, LONG, ("x", "y")], ids=["lesson", "wide", "long", "two"]
)
def test_nothing_is_wider_than_eighty_columns(language: str, words: tuple[str, ...]) -> None:
    for line in drawn(language, Setting(words)).splitlines():
        assert cell_len(line) <= 80, line
        assert "-0.00 " not in f"{line} "
        assert not re.search(r"\d…", line)


@pytest.mark.parametrize("language", WORDS)
@pytest.mark.parametrize("words", [Setting().sentence, WIDE], ids=["lesson", "wide"])
def test_headings_stand_over_their_numbers_whatever_the_width_of_letters(
    language: str, words: tuple[str, ...]
) -> None:
    text = drawn(language, Setting(words))
    tables = re.findall(r"^  (?:[QKVX]|weights|mask|output)\S* \(\d+, \d+\) *\n((?:  .*\n)+)", text, re.MULTILINE)
    tables = [table for table in tables if "░" not in table]
    assert len(tables) >= 8
    for table in tables:
        ends = [
            [cell_len(line[: found.end()]) for found in re.finditer(r"\S+", line)] for line in table.splitlines()
        ]
        assert len({tuple(row[-len(ends[0]) :]) for row in ends}) == 1, table
        assert len({row[0] for row in ends[1:]}) == 1, table
        assert len(set(np.diff(ends[0]))) == 1, table  # columns are equally wide


def test_words_that_are_markup_or_emoji_codes_stay_as_they_are() -> None:
    text = drawn("en", Setting(("[bold]", ":cat:", "[/]", "{x}")))
    assert text.count("[bold]") > 10
    assert text.count(":cat:") > 10
    assert "'{x}'" in text or "{x}" in text


@pytest.mark.parametrize("language", WORDS)
def test_where_shades_cannot_be_printed_plain_characters_stand_for_them(language: str) -> None:
    encoding = {"en": "ascii", "zh": "gb2312"}[language]
    text = drawn(language, Setting(), encoding)
    assert not re.search(r"\?\?|\?$", text, re.MULTILINE)
    assert "##" in text
    assert "::" in text


# The script


@pytest.mark.parametrize(("language", "title"), [("en", "What to notice"), ("zh", "注意看")])
def test_the_script_shows_every_step_in_either_language(language: str, title: str) -> None:
    out = lines("--language", language)
    headings = [line for line in out if re.match(r"\d/9  ", line)]
    assert [line[0] for line in headings] == NUMBERS
    assert out.count(title) == 9
    assert any(line.endswith("weights (5,) 0.58 0.10 0.08 0.16 0.09 1.00") for line in out)
    for shape in ("Q (6, 4)", "K (6, 4)", "V (6, 4)", "X (6, 8)", "weights (6, 6)"):
        assert any(shape in line for line in out), shape
    assert any("0.58 0.10 0.08 0.16 0.09." in line or "0.58 0.10 0.08 0.16 0.09。" in line for line in out)
    assert "\x1b" not in "\n".join(out)


def test_without_torch_the_walk_goes_on_and_takes_less_than_five_seconds() -> None:
    code = (
        f"import runpy, sys; sys.modules['torch'] = None; sys.argv = ['lesson.py']; "
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < 5
    assert "torch is not installed" in done.stdout
    assert done.stdout.count("What to notice") == 9


def test_the_walk_brings_in_nothing_heavy_before_the_last_step() -> None:
    code = (
        f"import runpy, sys; sys.argv = ['lesson.py', '--step', *map(str, range(1, 9))]\n"
        f"try: runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        f"except SystemExit: print({{'torch', 'matplotlib', 'hydra', 'scipy'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_some_steps_of_another_sentence_with_another_seed() -> None:
    out = lines("--step", "heatmap", "4", "--sentence", "猫 坐　在  垫子上", "--seed", "5", "--language", "zh")
    assert [line[:3] for line in out if re.match(r"\d/9", line)] == ["5/9", "4/9"]
    assert any("weights (4, 4)" in line for line in out)
    weights = grid(walk.sentence(Setting(("猫", "坐", "在", "垫子上"), seed=5)), "weights")
    assert any(line.split()[:2] == ["猫", f"{weights[0, 0]:.3f}"] for line in out)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--sentence", "alone"], "sentence must have 2 to 12 words, with spaces between them, but has 1: 'alone'"),
        (["--sentence", ""], "sentence must have 2 to 12 words, with spaces between them, but has 0: ''"),
        (["--sentence", "w " * 13], "sentence must have 2 to 12 words, with spaces between them, but has 13: "),
        (["--seed", "-3"], "seed must be 0 or more, but is -3"),
        (["--step", "soft"], "step must be 1 to 9 or one of softmax, attention, "),
    ],
)
def test_a_wrong_argument_is_one_line_and_code_two(typed: list[str], words: str) -> None:
    done = run(*typed)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"lookback: {words}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("typed", [["--language", "fr"], ["--seed", "x"], ["--step"], ["more"]])
def test_what_argparse_refuses_has_code_two_and_no_traceback(typed: list[str]) -> None:
    done = run(*typed)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("typed", ["", "--step 2"])
def test_a_full_disk_is_told_in_one_line(typed: str) -> None:
    command = f"'{sys.executable}' '{SCRIPT}' {typed} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "lookback: [Errno 28] No space left on device\n")


def test_a_closed_pipe_ends_in_silence() -> None:
    command = f"'{sys.executable}' '{SCRIPT}' | head -3"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""


def on_terminal(keys: Sequence[bytes], *typed: str) -> tuple[int, bytes]:
    """Run the script on a terminal; each key is pressed when it waits for one. CTRL_C is sent as a signal."""
    ours, theirs = pty.openpty()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
    command = [sys.executable, str(SCRIPT), *typed]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        signal.signal(signal.SIGINT, before)
        os.close(theirs)
        seen, waiting = b"", iter(keys)
        with os.fdopen(ours, "rb+", buffering=0) as terminal:
            while select.select([terminal], [], [], 10)[0]:
                try:
                    seen += terminal.read(4096)
                except OSError:  # Linux says so when the other end is closed
                    break
                if seen.endswith(b"Ctrl-C: end "):
                    time.sleep(0.3)  # after the prompt, until it reads
                    key = next(waiting)
                    process.send_signal(signal.SIGINT) if key == CTRL_C else terminal.write(key)
        if process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(2)
            process.kill()
    return process.returncode, seen


PAUSED = ("--pause", "--step", "1", "8", "6")


@pytest.mark.parametrize(
    ("keys", "code", "pages"), [((b"\n", b"\n"), 0, 3), ((b"\n", CTRL_C), 130, 2), ((b"\x04",), 0, 1)]
)
def test_pausing_waits_for_enter_and_ends_on_ctrl_c_or_ctrl_d(
    keys: tuple[bytes, ...], code: int, pages: int
) -> None:
    ended, seen = on_terminal(keys, *PAUSED)
    assert ended == code, seen
    assert seen.count(b"What to notice") == pages
    assert b"Traceback" not in seen


def test_pausing_does_nothing_in_a_pipe() -> None:
    out = lines(*PAUSED)
    assert out.count("What to notice") == 3
    assert not any("Enter" in line for line in out)


def test_readme_shows_what_the_script_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## The lesson, step by step") :].split("\n## ")[0]
    _, commands, _, shown, _ = re.split(r"```\n", section)
    assert "python scripts/lesson.py" in commands
    printed = "\n".join(line.rstrip() for line in lines("--step", "sentence", "heatmap"))
    for excerpt in shown.rstrip().split("\n...\n"):
        assert excerpt in printed


def test_a_screen_says_words_of_a_sentence_cut_to_their_cells() -> None:
    stream = io.StringIO()
    Screen(Console(file=stream, width=80), "zh").show(5, walk.heatmap(Setting(("软绵绵的小猫咪喵喵", "x"), seed=1)))
    assert "“软绵绵的小…”看" in stream.getvalue()
