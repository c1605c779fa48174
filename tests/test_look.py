"""The command that shows where trained runs look: what it says, what it leaves, and how it refuses."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lookback import checkpoint, config, interventions, look, subjects
from lookback.console import SteadyConsole
from lookback.figures import COLOURS
from lookback.interventions import MEANING
from lookback.run_folder import checkpoint_path
from lookback.subjects import Subject
from lookback.tasks.base import Ids
from lookback.tasks.reverse import Reverse
from lookback.tasks.synthetic import Synthetic, held_out
from lookback.tokens import Vocabulary
from test_subjects import MAPS, REVERSE, RIGHT, change_config, flat, pointing, scripted, write_weights

ROOT = Path(__file__).parents[1]
KINDS = ("encoder_self", "decoder_self", "cross")


def called(*arguments: object) -> tuple[int, str, str]:
    """Call the command in this process: its exit code, and what it printed to both streams."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = look.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
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


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def arrays(folder: Path) -> dict[str, Any]:
    with np.load(folder / "maps.npz", allow_pickle=False) as named:
        return dict(named)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer that nobody trained, with weights kept at two steps."""
    folder = tmp_path_factory.mktemp("written")
    for step in (0, 30):
        write_weights(folder, step, step=step)
    return write_weights(folder, "best", step=7)


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    """A copy of it for each test."""
    return Path(shutil.copytree(written, tmp_path / "run"))


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose maps are known stands in the place of any other."""
    found = [scripted(tmp_path, {"abc": ("cba", MAPS), "xyz": ("zyz", OTHER)})]
    monkeypatch.setattr(subjects, "subjects", lambda _: found)
    return tmp_path


OTHER = {**MAPS, "cross/layer0": np.stack([flat(4, 5), RIGHT, pointing(1, 1, 1, 1, width=5)])}

# ------------------------------------------------------------------------------------------ one run, one string


def test_a_string_leaves_pictures_arrays_and_a_page_of_all_kept_steps(run: Path) -> None:
    text = printed(run, "--source", "hello")
    folder = run / "attention" / "strings" / "hello"
    assert names(folder) == {*(f"{kind}_layer0.png" for kind in KINDS), "maps.npz", "explorer.html"}
    assert f"pictures   {folder}  (3 PNG, maps.npz)\n" in text
    assert f"explorer   {folder / 'explorer.html'}  (open it in a browser)\n" in text
    page = (folder / "explorer.html").read_text()
    assert "<title>transformer seed 3: hello</title>" in page
    assert re.findall(r'"label":"(\d+)"', page) == ["0", "7", "30"]
    assert '"sliders":[{"active":1,' in page  # the best
    with Image.open(folder / "cross_layer0.png") as picture:
        assert picture.width > picture.height > 100  # two heads side by side


def test_the_arrays_have_symbols_steps_and_maps_and_need_no_pickle(run: Path) -> None:
    printed(run, "--source", "hello")
    found = arrays(run / "attention" / "strings" / "hello")
    assert set(found) == {
        f"run0/{name}"
        for name in ("name", "step", "read", "written", "right", *(f"{kind}/layer0" for kind in KINDS))
    }
    assert (found["run0/name"].item(), found["run0/step"].item()) == ("transformer seed 3, step 7", 7)
    assert found["run0/read"].tolist() == ["<bos>", *"hello", "<eos>"]
    rows = len(found["run0/written"])
    assert found["run0/cross/layer0"].shape == (2, rows, 7)
    assert found["run0/decoder_self/layer0"].shape == (2, rows, rows)
    assert found["run0/right"].tolist()[:5] == [5, 4, 3, 2, 1]
    [shown] = subjects.subjects([run])
    again = shown.shown(subjects.follow(shown, REVERSE.spell("hello")))
    assert np.array_equal(found["run0/cross/layer0"], again.maps["cross/layer0"])


def test_the_terminal_says_what_was_written_how_heads_look_and_draws_the_clearest(known: Path) -> None:
    text = printed(known, "--source", "abc")
    assert text.startswith("\nscripted seed 7, step 7\nsource  abc\nwanted  cba\nwrote   cba   (right)\n")
    rows = re.findall(r"^(cross/layer0/head\d) +(\S+) +(\S+) +(\S+) +(\S+) *$", text, flags=re.MULTILINE)
    assert rows == [
        ("cross/layer0/head0", "0.20", "0.00", "1.61", "-"),  # log 5
        ("cross/layer0/head1", "1.00", "1.00", "0.00", "7"),
        ("cross/layer0/head2", "0.50", "0.00", "0.69", "-"),  # log 2
    ]
    assert "\non this string, cross/layer0/head1 is clearest: " in text
    assert "\ncross/layer0 head 1\nrows: symbol being written; columns: symbol of the source" in text
    assert "\n   ^ a b c $\n c      [█  \n b    [█    \n a  [█      \n $         █\n" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("head", "title", "line"),
    [
        ("cross/layer0/head2", "cross/layer0 head 2", " c █    [█  "),
        ("encoder_self/layer0/head1", "encoder_self/layer0 head 1", " b     █    "),
    ],
)
def test_any_head_can_be_drawn(known: Path, head: str, title: str, line: str) -> None:
    text = printed(known, "--source", "abc", "--head", head)
    assert f"\n{title}\nrows: " in text
    assert line in text.splitlines()


def test_a_terminal_with_colours_shows_them(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = partial(SteadyConsole, force_terminal=True, color_system="truecolor", width=100)
    monkeypatch.setattr(look, "SteadyConsole", live)
    text = printed(known, "--source", "abc")
    assert "dark = 0, bright = 1, [] = where the answer stands" in text
    red, green, blue = COLOURS[-1].tolist()
    assert len(re.findall(rf"48;2;{red};{green};{blue}m\[\]", text)) == 3  # the right cells have all weight
    assert (
        len(re.findall(rf"48;2;{red};{green};{blue}m  \x1b", text)) == 1
    )  # EOS looks at EOS, and nobody knows where


def test_an_encoding_without_shades_gets_plain_characters(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, encoding="ascii", write_through=True))
    assert look.main([str(known), "--source", "abc"]) == 0
    text = stream.getvalue().decode("ascii")
    assert " c      [#  \n" in text
    assert "?" not in text


def test_a_line_that_cannot_be_printed_as_it_is_is_printed_all_the_same(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(stream, encoding="latin-1", write_through=True))
    assert look.main([str(run), "--source", "ä字"]) == 2
    assert "but is 'ä?' (unknown: 'ä' '?')\n" in stream.getvalue().decode("latin-1")


def test_a_string_that_was_not_typed_is_a_held_out_one(run: Path) -> None:
    text = printed(run)
    [source_ids] = held_out(REVERSE, 8, 1, "validation")  # 8 is the longest that it was trained on
    source = "".join(REVERSE.source_vocabulary.decode(source_ids.tolist()))
    assert f"source  {source}\n" in text
    assert (run / "attention" / "strings" / source / "explorer.html").exists()


def test_files_go_where_they_are_wanted(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(run, "--source", "abc", "--output", tmp_path / "new" / "place")
    assert "explorer.html" in names(tmp_path / "new" / "place")
    assert not (run / "attention").exists()
    monkeypatch.setenv("HOME", str(tmp_path))
    printed("~/run", "--source", "abc", "--output=~/home")
    assert "explorer.html" in names(tmp_path / "home")


def test_a_second_call_takes_the_place_of_the_first(run: Path) -> None:
    first = printed(run, "--source", "abc")
    before = names(run / "attention" / "strings" / "abc")
    assert printed(run, "--source", "abc") == first
    assert names(run / "attention" / "strings" / "abc") == before


def test_a_folder_that_is_used_again_keeps_no_picture_of_an_earlier_look(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed(run, "--source", "abc", "--beside", "xyz", "--output", out)
    assert len(names(out)) == 11
    (out / "mine.png").write_bytes(b"")
    printed(run, "--source", "abc", "--output", out)
    assert names(out) == {*(f"{kind}_layer0.png" for kind in KINDS), "maps.npz", "explorer.html", "mine.png"}


def test_heads_can_be_read_where_it_is_narrow(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "SteadyConsole", partial(SteadyConsole, width=40))
    text = printed(known, "--source", "abc")
    table = text[text.index("wrote") : text.index("on this string")]
    assert "…" not in table
    assert all(len(line) <= 40 for line in table.splitlines())
    for word in ("weight", "largest", "entropy", "(nats)", "since", "step", "head2"):
        assert word in table
    assert re.findall(r"(\d\.\d\d) +(\d\.\d\d) +(\d\.\d\d) +(\S+) *$", table, flags=re.MULTILINE) == [
        ("0.20", "0.00", "1.61", "-"),
        ("1.00", "1.00", "0.00", "7"),
        ("0.50", "0.00", "0.69", "-"),
    ]


# ------------------------------------------------------------------------------------------------ kinds of runs


def test_a_plain_rnn_has_nothing_to_show_and_says_so(tmp_path: Path) -> None:
    run = write_weights(tmp_path / "run", "best", "rnn")
    text = printed(run, "--source", "abc")
    assert "rnn seed 3 has no attention: there is nothing to show\n" in text
    assert "explorer" not in text
    folder = run / "attention" / "strings" / "abc"
    assert names(folder) == {"maps.npz", "explorer.html"}
    assert set(arrays(folder)) == {f"run0/{name}" for name in ("name", "step", "read", "written", "right")}
    assert "This model has no attention" in (folder / "explorer.html").read_text()


def test_an_rnn_with_attention_has_one_head(tmp_path: Path) -> None:
    run = write_weights(tmp_path / "run", "best", "rnn_luong")
    assert "\ncross/layer0 head 0\n" in printed(run, "--source", "abc")
    assert names(run / "attention" / "strings" / "abc") == {"cross_layer0.png", "maps.npz", "explorer.html"}


@pytest.mark.parametrize(
    ("learned_by", "sentence"),
    [
        (
            {"head": "cross/layer0/head2", "since_step": 400},
            "cross/layer0/head2 has learned the task, since step 400\n",
        ),
        ({"head": "cross/layer0/head2", "since_step": None}, "cross/layer0/head2 has learned the task\n"),
        ({}, None),
        ("nonsense", None),
        ({"head": "cross/layer0/head2"}, None),
    ],
)
def test_what_the_run_says_of_validation_strings_is_said_as_well(
    known: Path, learned_by: object, sentence: str | None
) -> None:
    (known / "summary.json").write_text(json.dumps({"status": "finished", "learned_by": learned_by}))
    text = printed(known, "--source", "abc")
    assert ("on validation strings" in text) == (sentence is not None)
    assert f"\non validation strings, {sentence or ''}" in text or sentence is None


def test_where_no_head_learned_the_task_alone_that_is_said_once_it_was_measured(known: Path) -> None:
    measured = {"cross/layer0/head0": {"weight": 0.5, "largest": 0.75, "entropy": 0.1}}
    (known / "summary.json").write_text(json.dumps({"learned_by": {}, "alignment": measured}))
    assert "\non validation strings, no head has learned the task alone\n" in printed(known, "--source", "abc")


def test_a_run_that_is_still_training_is_shown_at_its_last_step(tmp_path: Path) -> None:
    run = write_weights(tmp_path / "run", "last", step=4)
    write_weights(run, 0, step=0)
    assert printed(run, "--source", "abc").startswith("\ntransformer seed 3, step 4\n")
    assert re.findall(
        r'"label":"(\d+)"', (run / "attention" / "strings" / "abc" / "explorer.html").read_text()
    ) == ["0", "4"]


def test_an_older_run_is_shown_and_questioned(tmp_path: Path) -> None:
    run = write_weights(tmp_path / "run", "best")
    change_config(run, "best", evaluate={"lengths": [3], "strings": 2, "extra_tokens": 1})
    printed(run, "--source", "abc")
    page = (run / "attention" / "strings" / "abc" / "explorer.html").read_text()
    assert '"sliders":[{' not in page  # there is one step alone
    assert "as trained" in printed(run, "--ablate", "cross/layer0/head0", "--strings", 2)


def test_where_a_page_would_be_too_large_earlier_steps_are_left_out(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "PAGE_CELLS", 1)
    printed(run, "--source", "abc")
    page = (run / "attention" / "strings" / "abc" / "explorer.html").read_text()
    assert re.findall(r'"label":"(\d+)"', page) == ["7", "30"]  # the last, and the one that is shown


def test_where_one_look_is_too_large_for_a_page_self_attention_is_left_out_and_told(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = len(arrays_of(run, "abc")["run0/written"])
    cross = 2 * rows * 5  # heads, rows, columns
    for cells, left in (
        (2 * cross, "encoder_self/layer0, decoder_self/layer0"),
        (2 * (cross + 2 * 25), "decoder_self/layer0"),
    ):
        monkeypatch.setattr(look, "PAGE_CELLS", cells)
        text = printed(run, "--source", "abc")
        assert f"the page leaves out {left}: the maps are large (see the pictures)\n" in text
        assert "(3 PNG, maps.npz)" in text
        page = (run / "attention" / "strings" / "abc" / "explorer.html").read_text()
        assert '"name":"cross\\u002flayer0\\u002fhead1"' in page.replace("/", "\\u002f")
        assert '"name":"decoder_self' not in page
        assert ('"name":"encoder_self' in page) == (left == "decoder_self/layer0")


def arrays_of(run: Path, source: str) -> dict[str, Any]:
    """What a look at a string leaves, where nothing is left out."""
    printed(run, "--source", source)
    return arrays(run / "attention" / "strings" / source)


def test_several_runs_share_the_room_of_a_page(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    thinned = subjects.thinned

    def listen(one: Subject, looks: Sequence[Any], cells: int) -> list[Any]:
        asked.append(cells)
        return thinned(one, looks, cells)

    monkeypatch.setattr(subjects, "thinned", listen)
    printed(run, write_weights(tmp_path / "b", "best", "rnn_luong"), "--source", "abc")
    assert asked == [look.PAGE_CELLS // 2] * 2


def test_a_finished_run_is_shown(tiny_run: Path, tmp_path: Path) -> None:
    text = printed(tiny_run, "--source", "hello", "--output", tmp_path)
    assert text.startswith("\ntransformer seed 0, step ")
    assert "(6 PNG, maps.npz)" in text


# ---------------------------------------------------------------------------- several runs, and several strings


def test_several_runs_stand_on_one_page(tmp_path: Path) -> None:
    runs = [
        write_weights(tmp_path / "a", "best"),
        write_weights(tmp_path / "b", "best", "rnn"),
        write_weights(tmp_path / "c", "best", "rnn_luong", step=9),
    ]
    text = printed(*runs, "--source", "abc")
    [folder] = (runs[0] / "attention" / "strings").iterdir()
    assert re.fullmatch("abc_and_2_more_[0-9a-f]{8}", folder.name)
    assert names(folder) == {
        *(f"run0_{kind}_layer0.png" for kind in KINDS),
        "run2_cross_layer0.png",
        "maps.npz",
        "explorer.html",
    }
    titles = [("transformer seed 3", "7"), ("rnn seed 3", "7"), ("rnn_luong seed 3", "9")]
    assert re.findall(r"<h2>(.*?), step (\d)</h2>", (folder / "explorer.html").read_text()) == titles
    assert re.findall(r"^(.*), step (\d)$", text, flags=re.MULTILINE) == titles
    found = arrays(folder)
    assert [found[f"run{number}/name"].item().partition(",")[0] for number in range(3)] == [
        name for name, _ in titles
    ]
    assert "run2/cross/layer0" in found
    assert "run1/cross/layer0" not in found


def test_a_run_beside_different_others_has_different_folders(tmp_path: Path) -> None:
    runs = [write_weights(tmp_path / name, "best") for name in "abc"]
    for others in ([runs[1]], [runs[2]], [runs[1]], runs[1:]):
        printed(runs[0], *others, "--source", "abc")
    assert len(names(runs[0] / "attention" / "strings")) == 3


def test_a_string_that_nobody_typed_is_one_that_all_runs_know(tmp_path: Path) -> None:
    runs = [write_weights(tmp_path / name, "best") for name in "ab"]
    change_task(runs[1], 3)
    text = printed(*runs)
    [source] = set(re.findall("^source  (.*)$", text, flags=re.MULTILINE))
    assert set(source) <= set("abc")
    assert len(source) == 8


def test_of_several_runs_the_one_that_refuses_is_named(tmp_path: Path) -> None:
    runs = [write_weights(tmp_path / "a", "best"), write_weights(tmp_path / "b", "best", "rnn_luong")]
    rule = "rnn_luong seed 3: head must be one that the model has (cross/layer0/head0), but is 'cross/layer0/head1'"
    assert refused(*runs, "--source", "abc", "--head", "cross/layer0/head1") == (2, rule)
    change_task(runs[1], 3)
    code, line = refused(*runs, "--source", "xyz")
    assert (code, line.partition(",")[0]) == (2, "rnn_luong seed 3: source must be made of the task's symbols")
    assert not (runs[0] / "attention").exists()


def change_task(run: Path, letters: int) -> None:
    """Give a run a smaller alphabet, and weights that fit."""
    path = checkpoint_path(run, "best")
    content = checkpoint.load(path)
    content["config"]["task"] |= {"alphabet_size": letters}
    _, make_model = config.build_parts(content["config"])
    checkpoint.save(path, content | {"model": make_model().state_dict()})


@pytest.mark.parametrize("name", ["two\nlines", "\udcff", "tab\tand\x1b[31mred"])
def test_a_run_folder_of_any_name_is_shown(tmp_path: Path, name: str) -> None:
    runs = [write_weights(tmp_path / other / name, "best") for other in "ab"]
    runs.append(write_weights(tmp_path / "c", "best"))
    text = printed(*runs, "--source", "abc", "--output", tmp_path / "out")
    assert len(re.findall(r"^transformer seed 3 \(.*\), step 7$", text, flags=re.MULTILINE)) == 3
    assert "explorer.html" in names(tmp_path / "out")
    assert "\x1b" not in text
    page = (tmp_path / "out" / "explorer.html").read_text(encoding="utf-8")
    assert len(re.findall("<h2>transformer seed 3 .*, step 7</h2>", page)) == 3


def test_two_strings_stand_beside_each_other(known: Path) -> None:
    text = printed(known, "--source", "abc", "--beside", "xyz")
    folder = known / "attention" / "strings" / "abc_xyz"
    kinds = ("encoder_self", "cross")
    assert names(folder) == {
        *(f"{name}_{kind}_layer0.png" for name in ("run0", "run1", "contrast") for kind in kinds),
        "maps.npz",
        "explorer.html",
    }
    assert text.startswith("\nabc\nsource  abc\n")
    assert "\nxyz\nsource  xyz\nwanted  zyx\nwrote   zyz   (1 wrong)\n          ^\n" in text
    assert "\nabc beside xyz\n" in text
    assert "(6 PNG, maps.npz)" in text
    assert re.search(
        r"^ cross/layer0 +0\.00 +0\.00 +0\.88 *$", text, flags=re.MULTILINE
    )  # 7/8: a half in one of four rows
    assert "The same for both:\n- " in text
    assert re.findall(r"<h2>(.*?), .*</h2>", (folder / "explorer.html").read_text()) == ["abc", "xyz"]
    found = arrays(folder)
    assert found["run1/read"].tolist() == ["<bos>", *"xyz", "<eos>"]
    assert np.array_equal(found["run1/cross/layer0"], OTHER["cross/layer0"])


def test_a_plain_rnn_can_read_two_strings(tmp_path: Path) -> None:
    run = write_weights(tmp_path / "run", "best", "rnn")
    text = printed(run, "--source", "abc", "--beside", "xyz")
    assert "This model has no attention, so there are no maps to compare." in text


def test_no_symbol_breaks_a_file_name_or_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Synthetic):
        """Copies symbols that mean something elsewhere."""

        def __init__(self) -> None:
            super().__init__(alphabet_size=7)
            self.source_vocabulary = self.target_vocabulary = Vocabulary("/.<$[\\%")

        def target(self, source: Ids) -> Ids:
            return source

    text = "../<$[\\%"
    maps = {"cross/layer0": flat(9, 10)[None]}
    found = [scripted(tmp_path / "run", {text: (text, maps), "/" * 8: (text, maps)}, Odd())]
    monkeypatch.setattr(subjects, "subjects", lambda _: found)
    printed("run", "--source", text, "--beside", "/" * 8)
    assert names(tmp_path) == {"run"}
    [folder] = (tmp_path / "run" / "attention" / "strings").iterdir()
    assert re.fullmatch(r"_{8}_[0-9a-f]{8}_{9}_[0-9a-f]{8}", folder.name)
    assert arrays(folder)["run0/written"].tolist() == [*text, "<eos>"]
    assert "<$[" not in (folder / "explorer.html").read_text().partition("<section>")[2]


def test_strings_that_a_file_system_may_confuse_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["ab", "AB", "a" * 41, "a" * 42, "Z" * 60]
    script = {text: (text[::-1], {"cross/layer0": flat(len(text) + 1, len(text) + 2)[None]}) for text in texts}
    found = [scripted(tmp_path, script, Reverse(alphabet_size=52))]
    monkeypatch.setattr(subjects, "subjects", lambda _: found)
    for text in texts:
        printed("run", "--source", text)
    folders = names(tmp_path / "attention" / "strings")
    assert "ab" in folders
    assert len({name.lower() for name in folders}) == len(texts)
    assert all(re.fullmatch(r"[a-zA-Z0-9_]{1,49}", name) for name in folders)


# ------------------------------------------------------------------------------------------------------ what if


WHAT_IF = ("--lengths", "3,5", "--strings", 2)


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        (["--ablate", "cross/layer0/head1"], [("uniform", [["cross/layer0", 1]])]),
        (["--ablate", "cross/layer0", "--by", "zero"], [("zero", [["cross/layer0", 0], ["cross/layer0", 1]])]),
        (
            ["--ablate", "cross/layer0/head1+decoder_self/layer0/head0"],
            [("uniform", [["cross/layer0", 1], ["decoder_self/layer0", 0]])],
        ),
        (
            ["--ablate", "each", "--by", "zero"],
            [
                ("zero", [[f"{kind}/layer0", head]])
                for kind in ("encoder_self", "decoder_self", "cross")
                for head in (0, 1)
            ],
        ),
        (["--force", "cross/layer0/head0"], [("force", [["cross/layer0", 0]])]),
        (
            ["--force", "cross/layer0", "--ablate", "encoder_self/layer0/head0", "--ablate", "cross/layer0/head0"],
            [
                ("uniform", [["encoder_self/layer0", 0]]),
                ("uniform", [["cross/layer0", 0]]),
                ("force", [["cross/layer0", 0], ["cross/layer0", 1]]),
            ],
        ),
    ],
)
def test_heads_are_ablated_and_forced_as_typed(run: Path, typed: list[str], asked: list[Any]) -> None:
    text = printed(run, *typed, *WHAT_IF)
    found = json.loads((run / "attention" / "what_if.json").read_text())
    assert [(row["kind"], row["heads"]) for row in found["interventions"]] == asked
    assert list(found["as_trained"]) == ["3", "5"]
    assert (found["strings"], found["split"], found["step"], found["run"]) == (2, "validation", 7, str(run))
    assert text.startswith("transformer seed 3: exact match by length, up to 2 validation strings each\n")
    assert len(re.findall(r"^ .*\S +\d\.\d\d +\d\.\d\d *$", text, flags=re.MULTILINE)) == 1 + len(asked)
    assert MEANING in text
    assert text.endswith(f"all numbers   {run / 'attention' / 'what_if.json'}\n")
    assert names(run / "attention") == {"what_if.json"}


def test_questions_are_asked_at_the_lengths_of_the_evaluation_unless_typed(run: Path, tmp_path: Path) -> None:
    printed(run, "--ablate", "cross/layer0/head0", "--strings", 2, "--output", tmp_path / "new")
    assert list(json.loads((tmp_path / "new" / "what_if.json").read_text())["as_trained"]) == ["3", "5"]
    text = printed(run, "--ablate", "cross/layer0/head0", "--strings", 2, "--lengths", "7,2,7")
    assert list(json.loads((run / "attention" / "what_if.json").read_text())["as_trained"]) == ["7", "2"]
    assert re.search(r"^ +7 +2 *$", text, flags=re.MULTILINE)  # typed twice, asked once


# ----------------------------------------------------------------------------------------------- wrong commands


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--source", ""], "source must be made of the task's symbols, abcdefghijklmnopqrstuvwxyz, but is ''"),
        (["--source", "a b"], "but is 'a b' (unknown: ' ')"),
        (["--source", "Häl"], "but is 'Häl' (unknown: 'H' 'ä')"),
        (["--source", "<eos>"], "but is '<eos>' (unknown: '<' '>')"),
        (
            ["--source", "abc", "--beside", "xyzw"],
            "--beside must have as many symbols as --source, but it has 4, and --source 3",
        ),
        (
            ["--source", "abc", "--beside", ""],
            "source must be made of the task's symbols, abcdefghijklmnopqrstuvwxyz, but is ''",
        ),
        (["--source", "abc", "--beside", "xy1"], "but is 'xy1' (unknown: '1')"),
        (
            ["--source", "a" * 12],
            "source has length 14 (marks included), "
            "but the model's positions end at 13 (model.positions.max_length)",
        ),
        (
            ["--source", "abc", "--head", "cross/layer1/head0"],
            "head must be one that the model has (encoder_self/layer0/head0 to head1, "
            "decoder_self/layer0/head0 to head1, cross/layer0/head0 to head1), but is 'cross/layer1/head0'",
        ),
        (["--source", "a" * 301], "source must have at most 300 symbols to be drawn, but has 301"),
        (["--source", "abc", "--head", ""], "but is ''"),
        (["--ablate", "cross/layer0/head2"], "but is 'cross/layer0/head2'"),
        (["--ablate", ""], "but is ''"),
        (["--force", "cross/layer0+nothing"], "but is 'nothing'"),
        (
            ["--force", "encoder_self/layer0/head0"],
            "head must be of cross-attention to be forced, for no other map has right cells, "
            "but is encoder_self/layer0/head0",
        ),
        (["--ablate", "each", "--lengths", "3,12", "--strings", "2"], "source has length 14 (marks included)"),
    ],
)
def test_a_wrong_command_is_one_clear_line_and_leaves_nothing(run: Path, typed: list[str], line: str) -> None:
    code, found = refused(run, *typed)
    assert code == 2
    assert line in found
    assert not (run / "attention").exists()


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--ablate", "each", "--source", "abc"], "--source does nothing with --ablate and --force, but is 'abc'"),
        (
            ["--force", "cross/layer0", "--beside", "abc"],
            "--beside does nothing with --ablate and --force, but is 'abc'",
        ),
        (["--ablate", "each", "--head", ""], "--head does nothing with --ablate and --force, but is ''"),
        (["--source", "abc", "--by", "zero"], "--by needs --ablate or --force, but is 'zero'"),
        (["--lengths", "3"], "--lengths needs --ablate or --force, but is [3]"),
        (["--strings", "3"], "--strings needs --ablate or --force, but is 3"),
        (["--force", "cross/layer0", "--by", "uniform"], "--by needs --ablate, but is 'uniform'"),
        (["--beside", "abc"], "--beside needs --source, but is 'abc'"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(run: Path, typed: list[str], line: str) -> None:
    assert refused(run, *typed) == (2, line)
    assert not (run / "attention").exists()


@pytest.mark.parametrize(
    "typed",
    [
        ["--ablate", "each"],
        ["--force", "cross/layer0/head0"],
        ["--source", "abc", "--head", "cross/layer0/head0"],
        ["--source", "abc", "--beside", "xyz", "--head", "each"],
    ],
)
def test_a_plain_rnn_has_no_head_to_ask_about(tmp_path: Path, typed: list[str]) -> None:
    run = write_weights(tmp_path / "run", "best", "rnn")
    code, line = refused(run, *typed)
    assert code == 2
    assert line.startswith("head must be one that the model has (it has no attention, so none), but is ")


@pytest.mark.parametrize(
    "typed", [["--ablate", "each"], ["--force", "cross/layer0/head0"], ["--beside", "abc"], ["--beside", ""]]
)
def test_questions_to_one_run_are_not_asked_to_several(run: Path, typed: list[str]) -> None:
    assert refused(run, run, *typed) == (2, "--beside, --ablate and --force take one run, but there are 2")


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ([], "the following arguments are required: RUN"),
        (["run", "--lengths", "3,,5"], "argument --lengths: must be a whole number from 1 to 1,000,000, but is "),
        (["run", "--lengths", "0"], "argument --lengths: must be a whole number from 1 to 1,000,000, but is 0"),
        (["run", "--lengths", "-3"], "argument --lengths: must be a whole number from 1 to 1,000,000, but is -3"),
        (
            ["run", "--lengths", "3,100001"],
            "argument --lengths: must be at most 10000 symbols, but is 100001",
        ),
        (
            ["run", "--lengths", "three"],
            "argument --lengths: must be a whole number from 1 to 1,000,000, but is three",
        ),
        (["run", "--strings", "0"], "argument --strings: must be a whole number from 1 to 1,000,000, but is 0"),
        (["run", "--strings", "1e3"], "argument --strings: must be a whole number from 1 to 1,000,000, but is 1e3"),
        (["run", "--by", "half"], "argument --by: invalid choice: 'half'"),
        (["run", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_what_cannot_be_understood_ends_with_the_usage_and_one_line(typed: list[str], line: str) -> None:
    code, out, err = called(*typed)
    assert (code, out) == (2, "")
    assert err.startswith("usage: attention.py ")
    assert err.splitlines()[-1].startswith(f"attention.py: error: {line}")


# ------------------------------------------------------------------------------------------ what cannot be read


def test_where_no_run_is_a_line_says_so(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    for folder in (tmp_path / "nothing", tmp_path, file, "n" * 300):
        code, line = refused(folder, "--source", "abc")
        assert code == 1
        assert str(folder) in line
    assert refused(run, tmp_path / "nothing")[0] == 1


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04"])
def test_a_damaged_checkpoint_is_named(run: Path, content: bytes) -> None:
    path = checkpoint_path(run, "best")
    path.write_bytes(content)
    code, line = refused(run, "--source", "abc")
    assert code == 1
    assert line.startswith(f"{path}: not a readable checkpoint (")


def test_a_checkpoint_of_another_model_is_named(run: Path) -> None:
    path = checkpoint_path(run, "best")
    content = checkpoint.load(path)
    name, _ = content["model"].popitem()
    checkpoint.save(path, content)
    code, line = refused(run, "--source", "abc")
    assert code == 1
    assert line == f"{path}: does not fit the model: {name} is missing"


def test_a_hostile_configuration_is_refused(run: Path) -> None:
    change_config(run, "best", task={"_target_": "os.system", "command": "touch hacked"})
    code, line = refused(run, "--source", "abc")
    assert code == 1
    assert "os.system" in line


@pytest.mark.parametrize("typed", [["--source", "abc"], ["--ablate", "cross/layer0/head0", *map(str, WHAT_IF)]])
def test_a_file_in_the_place_of_a_folder_is_one_line(run: Path, tmp_path: Path, typed: list[str]) -> None:
    (run / "attention").write_text("in the way")
    code, line = refused(run, *typed)
    assert code == 1
    assert str(run / "attention") in line
    code, line = refused(run, *typed, "--output", run / "attention" / "below")
    assert code == 1
    assert (run / "attention").read_text() == "in the way"
    assert "explorer.html" not in names(tmp_path)


def test_a_folder_in_which_nothing_can_be_written_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person may be root, who can write everywhere, so the refusal is played."""

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(run / "attention"))

    monkeypatch.setattr(Path, "mkdir", fail)
    assert refused(run, "--source", "abc") == (1, f"[Errno 13] Permission denied: '{run / 'attention'}'")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you ...")]
)
def test_too_little_memory_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(interventions, "exact_match_by_length", fail)
    code, line = refused(run, "--ablate", "each")
    assert (code, line) == (1, "this machine has too little memory for so long strings")


def test_ctrl_c_is_130_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Sequence[Path]) -> list[Subject]:
        raise KeyboardInterrupt

    monkeypatch.setattr(subjects, "subjects", interrupt)
    assert called("run") == (130, "", "")


# --------------------------------------------------------------------------------------------------- the script


def test_the_script_runs_where_only_ascii_can_be_printed(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "scripts/attention.py", run, "--source", "abc"],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"transformer seed 3, step 7\nsource  abc\n" in done.stdout
    assert "explorer.html" in names(run / "attention" / "strings" / "abc")
