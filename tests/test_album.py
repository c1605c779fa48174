"""What a run keeps of its attention: arrays that anyone can read, and a film of all steps in order."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lookback import album
from lookback.figures import COLOURS, OUTLINE, MapPicture, Panel, Picture
from lookback.probes import PlaceMaps, Probe, make_probe
from lookback.tasks.base import Ids
from lookback.tasks.reverse import Reverse
from lookback.tasks.synthetic import Synthetic
from lookback.tokens import Vocabulary

REVERSE = Reverse(alphabet_size=26)
CROSS = "cross/layer0"


def probe(text: str) -> Probe:
    return make_probe(REVERSE, REVERSE.spell(text))


def even(weight: float, text: str, heads: int = 2) -> PlaceMaps:
    """Maps whose cells all have one weight, which grows from head to head."""
    rows = len(text) + 1
    maps = np.stack([np.full((rows, rows + 1), weight + head / 4) for head in range(heads)])
    return {CROSS: maps.astype(np.float32), "cross/layer1": 1 - maps.astype(np.float32)}


def colour(weight: float) -> list[int]:
    found: list[int] = COLOURS[round(weight * (len(COLOURS) - 1))].tolist()
    return found


def middle(picture: Picture, weight: float) -> tuple[float, float]:
    """Where, on average, the pixels of a weight's colour are: from the top, and from the left."""
    rows, columns = np.nonzero((picture.rgb() == colour(weight)).all(axis=-1))
    return float(rows.mean()), float(columns.mean())


# ------------------------------------------------------------------------------------------------------- arrays


def test_arrays_and_symbols_are_read_without_pickle(tmp_path: Path) -> None:
    shown = probe("ab")
    maps = even(0.25, "ab")
    path = tmp_path / "new" / "maps.npz"
    album.save_arrays(path, album.arrays("run3", shown, maps))
    with np.load(path, allow_pickle=False) as named:
        assert set(named) == {f"run3/{name}" for name in ("read", "written", "right", CROSS, "cross/layer1")}
        assert named["run3/read"].tolist() == ["<bos>", "a", "b", "<eos>"]
        assert named["run3/written"].tolist() == ["b", "a", "<eos>"]
        assert named["run3/right"].tolist() == [2, 1, -1]
        assert np.array_equal(named[f"run3/{CROSS}"], maps[CROSS])
        assert named[f"run3/{CROSS}"].dtype == np.float32
    assert list(path.parent.iterdir()) == [path]  # nothing half-written is left


def test_whatever_a_symbol_is_it_is_read_back(tmp_path: Path) -> None:
    class Odd(Synthetic):
        """Copies symbols that mean something elsewhere."""

        def __init__(self) -> None:
            super().__init__(alphabet_size=4)
            self.source_vocabulary = self.target_vocabulary = Vocabulary(["../", "$\\frac$", "字", "<script>"])

        def target(self, source: Ids) -> Ids:
            return source

    shown = make_probe(Odd(), np.array([4, 5, 6, 7]))
    album.save_maps(tmp_path, [shown], [even(0.5, "abcd")])
    with np.load(tmp_path / "maps.npz", allow_pickle=False) as named:
        assert named["probe0/read"].tolist() == ["<bos>", "../", "$\\frac$", "字", "<script>", "<eos>"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "maps.npz",
        "probe0_cross_layer0.png",
        "probe0_cross_layer1.png",
    }


# -------------------------------------------------------------------------------------------------- logged maps


def test_the_maps_of_each_logging_step_are_kept_in_order(tmp_path: Path) -> None:
    probes = [probe("ab"), probe("cde")]
    steps = [5, 100_000_000, 10, 7]  # the second has more digits than file names are padded to
    for step in steps:
        album.keep(tmp_path, step, probes, [even(step / 1e9, "ab"), even(0.5, "cde")])
    (tmp_path / "logged" / "notes.npz").write_text("not ours")
    kept = album.kept(tmp_path)
    assert list(kept) == sorted(steps)
    with np.load(kept[7], allow_pickle=False) as named:
        assert named["probe0/read"].tolist() == ["<bos>", "a", "b", "<eos>"]
        assert named["probe1/written"].tolist() == ["e", "d", "c", "<eos>"]
        assert named[f"probe1/{CROSS}"].shape == (2, 4, 5)
        assert named[f"probe0/{CROSS}"][1, 2, 3] == np.float32(7 / 1e9 + 0.25)


def test_nothing_kept_is_no_step(tmp_path: Path) -> None:
    assert album.kept(tmp_path / "attention") == {}
    album.forget_later(tmp_path / "attention", 0)
    assert album.film(tmp_path / "attention", probe("ab"), CROSS, 0) is None


def test_what_was_kept_after_a_step_is_forgotten(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        album.keep(tmp_path, step, [probe("ab")], [even(0.5, "ab")])
    album.forget_later(tmp_path, 4)
    assert list(album.kept(tmp_path)) == [2, 4]
    album.keep(tmp_path, 4, [probe("ab")], [even(0.125, "ab")])  # logged again, it takes the place of the old
    assert list(album.kept(tmp_path)) == [2, 4]
    with np.load(album.kept(tmp_path)[4]) as named:
        assert named[f"probe0/{CROSS}"][0, 0, 0] == 0.125


# --------------------------------------------------------------------------------------------------------- film


def filmed(folder: Path, steps: int, place: str = CROSS, head: int = 0) -> Picture:
    """The film of a string of two, in whose frame number n each weight is (n + 1) / 32."""
    for number in random.Random(4).sample(range(steps), steps):
        album.keep(
            folder,
            10 * (number + 1),
            [probe("xyz"), probe("ab")],
            [even(0.9, "xyz"), even((number + 1) / 32, "ab")],
        )
    picture = album.film(folder, probe("ab"), place, head)
    assert picture is not None
    return picture


@pytest.mark.parametrize(
    ("steps", "rows"), [(1, [1]), (5, [5]), (8, [8]), (9, [5, 4]), (12, [6, 6]), (17, [6, 6, 5])]
)
def test_a_film_has_one_frame_for_each_logged_step_in_order(tmp_path: Path, steps: int, rows: list[int]) -> None:
    picture = filmed(tmp_path, steps)
    places = [middle(picture, (number + 1) / 32) for number in range(steps)]
    tops = [round(top) for top, _ in places]
    assert [tops.count(top) for top in dict.fromkeys(tops)] == rows
    assert places == sorted(places, key=lambda place: (round(place[0]), place[1]))
    cells = 3 * 4 * album.FILM_CELL**2
    outlines = 2 * (album.FILM_CELL**2 - (album.FILM_CELL - 2) ** 2)  # two right cells, each in a line of one pixel
    for number in range(steps):
        assert int((picture.rgb() == colour((number + 1) / 32)).all(axis=-1).sum()) == cells - outlines
    assert int((picture.rgb() == OUTLINE).all(axis=-1).sum()) == steps * outlines


@pytest.mark.parametrize(("place", "head", "weight"), [(CROSS, 1, 1 / 32 + 1 / 4), ("cross/layer1", 0, 31 / 32)])
def test_a_film_is_of_the_head_and_the_string_asked_for(
    tmp_path: Path, place: str, head: int, weight: float
) -> None:
    picture = filmed(tmp_path, 3, place, head)
    assert (picture.rgb() == colour(weight)).all(axis=-1).any()
    assert not (picture.rgb() == colour(0.9)).all(axis=-1).any()  # the other string


def test_each_frame_names_its_step_and_symbols_stand_at_the_edges_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Panel] = []

    def picture(panels: Sequence[Panel], *_: object) -> MapPicture:
        drawn.extend(panels)
        return MapPicture(panels)

    monkeypatch.setattr(album, "MapPicture", picture)
    filmed(tmp_path, 11)
    assert [panel.title for panel in drawn] == [f"step {10 * number}" for number in range(1, 12)]
    assert [panel.labelled[0] for panel in drawn] == [True, *[False] * 5, True, *[False] * 4]
    assert [panel.labelled[1] for panel in drawn] == [True] * 6 + [False] * 5


@pytest.mark.parametrize("before", [["cd", "ab"], ["cd"], ["ab", "xyz"], ["ab"]])
def test_a_film_is_of_one_string_wherever_it_stood_though_the_run_was_resumed_with_other_probes(
    tmp_path: Path, before: list[str]
) -> None:
    for step, weight in ((10, 1 / 32), (20, 2 / 32)):
        album.keep(tmp_path, step, [probe(text) for text in before], [even(weight, text) for text in before])
    now = ["cd", "ab"]
    for step, weight in ((30, 3 / 32), (40, 4 / 32)):
        album.keep(tmp_path, step, [probe(text) for text in now], [even(weight, text) for text in now])
    picture = album.film(tmp_path, probe("ab"), CROSS, 0)
    assert picture is not None
    shown = [number for number in range(1, 5) if (picture.rgb() == colour(number / 32)).all(axis=-1).any()]
    assert shown == ([1, 2, 3, 4] if "ab" in before else [3, 4])


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04", None])
def test_a_damaged_file_costs_its_frame_alone_and_is_named(tmp_path: Path, content: bytes | None) -> None:
    for step in (10, 20, 30):
        album.keep(tmp_path, step, [probe("ab")], [even(step / 320, "ab")])
    path = album.kept(tmp_path)[20]
    path.write_bytes(path.read_bytes()[:-300] if content is None else content)
    told: list[str] = []
    picture = album.film(tmp_path, probe("ab"), CROSS, 0, told.append)
    assert picture is not None
    shown = [number for number in (1, 2, 3) if (picture.rgb() == colour(number / 32)).all(axis=-1).any()]
    assert shown == [1, 3]
    [line] = told
    assert line.startswith(f"step 20 is not in the film: {path} cannot be read (")


def test_maps_of_another_shape_cost_their_frame_alone(tmp_path: Path) -> None:
    album.keep(tmp_path, 10, [probe("ab")], [even(0.5, "abcd")])
    album.keep(tmp_path, 20, [probe("ab")], [even(0.5, "ab")])
    told: list[str] = []
    assert album.film(tmp_path, probe("ab"), CROSS, 0, told.append) is not None
    [line] = told
    assert line.endswith("(ValueError: maps must be of shape (3, 4), but are (5, 6))")


# ---------------------------------------------------------------------------------------------------- last maps


def test_the_last_maps_are_pictures_and_arrays(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "attention"
    maps = [even(0.125, "ab"), even(0.375, "cde")]
    album.save_maps(folder, [probe("ab"), probe("cde")], maps)
    pictures = {f"probe{number}_cross_layer{layer}.png" for number in range(2) for layer in range(2)}
    assert {path.name for path in folder.iterdir()} == pictures | {"maps.npz"}
    drawn = np.asarray(Image.open(folder / "probe1_cross_layer0.png").convert("RGB"))
    for weight in (0.375, 0.625):  # both heads, side by side
        assert (drawn == colour(weight)).all(axis=-1).any()
    assert not (drawn == colour(0.125)).all(axis=-1).any()
    with np.load(folder / "maps.npz", allow_pickle=False) as named:
        assert named[f"probe1/{CROSS}"].tolist() == maps[1][CROSS].tolist()
        assert named["probe0/right"].tolist() == [2, 1, -1]


def test_fewer_probes_leave_no_picture_of_earlier_ones(tmp_path: Path) -> None:
    album.save_maps(tmp_path, [probe("ab"), probe("cde")], [even(0.5, "ab"), even(0.5, "cde")])
    others = ["mine.png", "probe1.png", "my_probe1_cross_layer0.png"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    album.save_maps(tmp_path, [probe("cde")], [{CROSS: even(0.5, "cde")[CROSS]}])
    assert {path.name for path in tmp_path.iterdir()} == {"maps.npz", "probe0_cross_layer0.png", *others}
