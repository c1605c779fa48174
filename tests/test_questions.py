"""Questions to a trained model: which heads are meant, what table and file say, two strings side by side."""

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from lookback import interventions, questions
from lookback.evaluate import EvaluateSettings
from lookback.figures import MapPicture, Panel
from lookback.interventions import MEANING, Intervention
from lookback.models.rnn import Rnn
from lookback.models.transformer import Transformer
from lookback.probes import PlaceMaps
from lookback.questions import answer, asked_heads, show_contrast
from lookback.subjects import Subject, follow
from lookback.tasks.copy import Copy
from lookback.tasks.synthetic import held_out
from test_interventions import Looker
from test_recurrent import recurrent
from test_subjects import flat, pointing, scripted
from test_transformer import transformer

COPY = Copy(alphabet_size=26)
SETTINGS = EvaluateSettings(
    lengths=[6, 3], strings=23, symbols=None, extra_tokens=4, exact_only=False, split="validation"
)


def console(width: int = 100, *, colours: bool = False) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    system: Any = "truecolor" if colours else None
    return Console(file=stream, width=width, force_terminal=colours, color_system=system, highlight=False), stream


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the printed table: kind and name -> its cells. A kind stands alone above its rows."""
    found, kind = {}, ""
    for line in text.splitlines():
        if match := re.fullmatch(r" ( *)(\S.*?)((?: +\d\.\d\d)+) *", line):
            inset, name, cells = match.groups()
            found[f"{kind} {name}" if inset else name] = cells.split()
        elif match := re.fullmatch(r" (\w+) *", line):
            kind = match[1]
    return found


# ---------------------------------------------------------------------------------------- which heads are meant


MODEL: Transformer = transformer(num_layers=2)  # three heads at each place


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("cross/layer1/head2", [("cross/layer1", 2)]),
        ("cross/layer1", [("cross/layer1", 0), ("cross/layer1", 1), ("cross/layer1", 2)]),
        ("cross/layer1/head2+encoder_self/layer0/head1", [("cross/layer1", 2), ("encoder_self/layer0", 1)]),
        ("cross/layer1/head2+0", [("cross/layer1", 2), ("cross/layer1", 0)]),
        (
            "cross/layer1/head2+cross/layer1",  # named twice, changed once
            [("cross/layer1", 2), ("cross/layer1", 0), ("cross/layer1", 1)],
        ),
    ],
)
def test_a_head_a_place_and_several_are_one_intervention(text: str, heads: list[tuple[str, int]]) -> None:
    assert asked_heads(MODEL, text, "zero") == [tuple(heads)]


def test_each_is_every_head_in_turn() -> None:
    found = asked_heads(MODEL, "each", "zero")
    assert [len(heads) for heads in found] == [1] * 18
    assert len(set(found)) == 18
    assert (("decoder_self/layer1", 2),) in found
    assert asked_heads(MODEL, "each", "force") == [heads for heads in found if heads[0][0].startswith("cross/")]


@pytest.mark.parametrize(
    "text", ["cross/layer2", "cross/layer1/head3", "", "each+cross/layer1", "cross/layer1+", "EACH"]
)
def test_a_head_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^head must be one that the model has"):
        asked_heads(MODEL, text, "zero")


@pytest.mark.parametrize("text", ["each", "cross/layer0/head0"])
def test_a_model_without_attention_has_no_head_to_ask_about(text: str) -> None:
    model = recurrent("rnn")
    assert isinstance(model, Rnn)
    rule = re.escape(f"head must be one that the model has (it has no attention, so none), but is '{text}'")
    with pytest.raises(ValueError, match=f"^{rule}$"):
        asked_heads(model, text, "zero")


# ------------------------------------------------------------------------------------------------------ what if


def asked(*kinds: str) -> list[Intervention]:
    return [Intervention(kind, (("cross/layer0", head),)) for kind in kinds for head in (0, 1)]  # type: ignore[arg-type]


def test_a_model_that_is_known_answers_as_it_must(tmp_path: Path) -> None:
    """It copies strings that start with an even id, by head 0 alone; forced, it copies all; without it, none."""
    one = Subject(tmp_path / "run", "looker seed 5", COPY, Looker(), 7, SETTINGS, 3, {})
    shares = {}
    for length in SETTINGS.lengths or ():
        sources = held_out(COPY, length, 23, "validation")
        shares[length] = sum(int(source[0]) % 2 == 0 for source in sources) / 23
    assert 0 < shares[3] < 1
    out, stream = console()
    path = answer(out, one, asked("zero", "force", "uniform"), SETTINGS, tmp_path / "new")
    assert path == tmp_path / "new" / "what_if.json"
    text = stream.getvalue()
    assert text.startswith("looker seed 5: exact match by length, up to 23 validation strings each\n")
    trained = [f"{shares[length]:.2f}" for length in (6, 3)]
    assert rows(text) == {
        "as trained": trained,
        "zero cross/layer0/head0": ["0.00", "0.00"],
        "zero cross/layer0/head1": trained,
        "force cross/layer0/head0": ["1.00", "1.00"],
        "force cross/layer0/head1": trained,
        "uniform cross/layer0/head0": ["0.00", "0.00"],
        "uniform cross/layer0/head1": trained,
    }
    assert re.search(r"^ +6 +3 *$", text, flags=re.MULTILINE)
    assert MEANING.splitlines()[0] in text
    found = json.loads(path.read_text())
    whole = {str(length): share for length, share in shares.items()}
    assert found["as_trained"] == whole
    assert (found["run"], found["step"], found["strings"], found["split"]) == (str(one.folder), 7, 23, "validation")
    assert found["interventions"][2] == {
        "name": "force cross/layer0/head0",
        "kind": "force",
        "heads": [["cross/layer0", 0]],
        "exact_match": {"6": 1.0, "3": 1.0},
    }
    assert len(found["interventions"]) == 6


def given(monkeypatch: pytest.MonkeyPatch, before: Sequence[float], after: Sequence[float]) -> None:
    """Exact match at lengths 6 and 3 as given."""

    def exact_match(*arguments: Any) -> dict[int, float]:
        return dict(zip(SETTINGS.lengths or (), before if arguments[-1] is None else after, strict=True))

    monkeypatch.setattr(interventions, "exact_match_by_length", exact_match)


@pytest.mark.parametrize(
    ("before", "after", "colours"),
    [
        ((1.0, 0.5), (0.5, 0.75), ["31", "32"]),  # red where it fell, green where it rose
        ((0.5, 0.5), (0.46, 0.54), ["39", "39"]),  # so little may be chance
        ((0.5, 0.5), (0.44, 0.56), ["31", "32"]),
        ((0.0, 1.0), (0.0, 1.0), ["39", "39"]),
    ],
)
def test_what_fell_is_red_and_what_rose_is_green(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[float, float],
    after: tuple[float, float],
    colours: list[str],
) -> None:
    given(monkeypatch, before, after)
    out, stream = console(colours=True)
    answer(out, scripted(tmp_path), asked("zero")[:1], SETTINGS, tmp_path)
    cells = re.findall(r"\x1b\[(3\d)m(\d\.\d\d)\x1b\[0m", stream.getvalue())
    assert cells == list(zip(colours, [f"{value:.2f}" for value in after], strict=True))


def test_a_long_name_is_folded_and_no_number_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, (0.5, 0.5), (0.25, 1.0))
    heads = tuple((f"cross/layer{layer}", head) for layer in range(2) for head in range(4))
    out, stream = console(60)
    answer(out, scripted(tmp_path), [Intervention("zero", heads)], SETTINGS, tmp_path)
    text = stream.getvalue()
    assert re.search(r"0\.25 +1\.00", text)
    assert all(f"cross/layer{layer}/head0+1+2+3" in text for layer in range(2))
    assert "…" not in text


def test_nothing_is_left_of_a_question(tmp_path: Path) -> None:
    model = Looker()
    one = Subject(tmp_path, "looker", COPY, model, 7, SETTINGS, 3, {})
    first, second = (answer(console()[0], one, asked("zero", "force"), SETTINGS, tmp_path) for _ in range(2))
    assert (first.name, second.name) == ("what_if.json", "what_if_2.json")
    assert first.read_text() == second.read_text()
    assert model.pointer.change is None


def test_two_processes_that_ask_at_once_each_keep_their_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other answers while this one is at work; and a name may be taken by a folder or a link."""
    (tmp_path / "what_if_3.json").mkdir()
    (tmp_path / "what_if_4.json").symlink_to("nowhere")
    found: list[Path] = []

    def exact_match(*arguments: Any) -> dict[int, float]:
        if not found:
            found.append(tmp_path)
            found[0] = answer(console()[0], scripted(tmp_path), asked("zero"), SETTINGS, tmp_path)
        return dict.fromkeys(SETTINGS.lengths or (), 0.5)

    monkeypatch.setattr(interventions, "exact_match_by_length", exact_match)
    found += [answer(console()[0], scripted(tmp_path), asked("force")[:1], SETTINGS, tmp_path) for _ in range(2)]
    assert [path.name for path in found] == ["what_if.json", "what_if_2.json", "what_if_5.json"]
    assert [len(json.loads(path.read_text())["interventions"]) for path in found] == [2, 1, 1]


def test_an_answer_that_cannot_be_written_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    given(monkeypatch, (0.5, 0.5), (0.5, 0.5))
    monkeypatch.setattr(questions, "write_whole", full_disk)
    with pytest.raises(OSError, match="No space left"):
        answer(console()[0], scripted(tmp_path), asked("zero"), SETTINGS, tmp_path)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------- two strings side by side


PLACE, SYMBOL = "cross/layer0", "encoder_self/layer0"
ONE: PlaceMaps = {
    PLACE: np.stack([flat(4, 5), pointing(3, 2, 1, 4, width=5)]),
    SYMBOL: np.stack([pointing(0, 1, 2, 3, 4, width=5)] * 3),
}
OTHER: PlaceMaps = {
    PLACE: np.stack([flat(4, 5), pointing(3, 2, 2, 4, width=5)]),
    SYMBOL: np.stack([pointing(0, 2, 1, 3, 4, width=5)] * 3),
}


def compared(one: Subject, folder: Path) -> tuple[int, str]:
    """What comes of comparing `abc` and `xyz`: the number of pictures, and the words."""
    first, second = (follow(one, one.task.spell(text))[0] for text in ("abc", "xyz"))
    out, stream = console()
    return show_contrast(out, first, second, one.model, folder), stream.getvalue()


def test_two_strings_are_compared_in_words_and_pictures(tmp_path: Path) -> None:
    run = scripted(tmp_path, {"abc": ("cba", ONE), "xyz": ("zyx", OTHER)})
    count, text = compared(run, tmp_path)
    assert count == 2
    assert text.startswith("\nabc beside xyz\n")
    assert "abc and xyz have different symbols at 3 of 3 places." in text
    distances = re.findall(r"^ (\S+/layer0) +(\S+) +(\S+)(?: +(\S+))? *$", text, flags=re.MULTILINE)
    assert distances == [("cross/layer0", "0.00", "0.25", ""), ("encoder_self/layer0", "0.40", "0.40", "0.40")]
    before, same = text.split("The same for both:\n")
    assert "different symbols" in before
    assert all(line.startswith("- ") for line in same.splitlines())
    assert "- weights of the model: watched again, it makes both maps (at most 0.0e+00 off)" in same
    assert {path.name for path in tmp_path.iterdir()} == {
        f"contrast_{name}_layer0.png" for name in ("cross", "encoder_self")
    }
    with Image.open(tmp_path / "contrast_cross_layer0.png") as picture:
        assert picture.width > picture.height  # two heads below each other, three maps side by side


def test_a_picture_has_both_maps_of_a_head_and_their_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Panel, NDArray[np.floating]]] = []
    across: list[object] = []

    class Recorder(MapPicture):
        def __init__(self, panels: Sequence[Panel], per_row: int | None = None, *_: object, **__: object) -> None:
            super().__init__(panels, per_row)
            self.panels = panels
            across.append(per_row)

        def draw(self, maps: Sequence[NDArray[np.floating]]) -> Any:
            drawn.extend(zip(self.panels, maps, strict=True))
            return super().draw(maps)

    monkeypatch.setattr(questions, "MapPicture", Recorder)
    run = scripted(tmp_path, {"abc": ("cba", {PLACE: ONE[PLACE]}), "xyz": ("zyx", {PLACE: OTHER[PLACE]})})
    compared(run, tmp_path)
    assert across == [3]
    assert [panel.title for panel, _ in drawn] == [
        f"head {head}{what}" for head in range(2) for what in (" on abc", " on xyz", ": |difference|")
    ]
    for head in range(2):
        assert np.array_equal(drawn[3 * head][1], ONE[PLACE][head])
        assert np.array_equal(drawn[3 * head + 1][1], OTHER[PLACE][head])
    changed = np.zeros((4, 5))
    changed[2, 1] = changed[2, 2] = 1.0
    assert np.array_equal(drawn[5][1], changed)
    assert not drawn[2][1].any()
    first, second, third = (panel for panel, _ in drawn[3:])
    assert (first.rows[0], second.rows[0], third.rows[0]) == ("c", "z", "1")
    assert list(third.columns) == ["1", "2", "3", "4", "5"]
    assert first.outlined == second.outlined == [(0, 3), (1, 2), (2, 1)]
    assert not third.outlined


def test_strings_for_which_unequal_numbers_of_symbols_were_written_are_compared_where_both_have_rows(
    tmp_path: Path,
) -> None:
    four, two = (
        {PLACE: flat(rows, 5)[None], "decoder_self/layer0": np.eye(rows, dtype=np.float32)[None]} for rows in (4, 2)
    )
    run = scripted(tmp_path, {"abc": ("cba", four), "xyz": ("z", two)})
    count, text = compared(run, tmp_path)
    assert count == 2
    assert "4 and 2 symbols were written (EOS counts)" in text
    assert len(list(tmp_path.glob("contrast_*.png"))) == 2


def test_a_model_without_attention_has_nothing_to_compare(tmp_path: Path) -> None:
    run = scripted(tmp_path, {"abc": ("cba", {}), "xyz": ("zyx", {})})
    count, text = compared(run, tmp_path)
    assert count == 0
    assert "This model has no attention, so there are no maps to compare." in text
    assert "nothing in common" not in text
    assert not re.search("maps?, |decoder's maps|cross-attention|watched again", text)
    assert not list(tmp_path.iterdir())
