"""Pictures of maps: bright where the weight is, not transposed, the same scale always, no global state."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from lookback.figures import (
    CELL,
    COLOURS,
    LEVELS,
    OUTLINE,
    PAD,
    PALETTE,
    Label,
    MapPicture,
    Panel,
    Writer,
    level,
)
from lookback.symbols import plain

PIXELS = CELL
HAND_MADE = np.array([[0.0, 0.5, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0, 0.0]])
PANEL = Panel("abcde", ["x", "y", "z"], ["a", "b", "c", "d", "e"], "written", "read")


def brightness(picture: NDArray[np.uint8]) -> NDArray[np.floating]:
    grey: NDArray[np.floating] = picture.astype(float).mean(axis=-1)
    return grey


def cells(picture: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.floating]:
    """The brightness at the middle of each cell; the frame is found as the largest block of map colours."""
    grey = brightness(picture)
    dark = np.argwhere(grey < 40)  # the zero cells; text is thin and outside
    counts_y, counts_x = (np.bincount(dark[:, axis]) for axis in (0, 1))
    top, left = np.argmax(counts_y > PIXELS * 2), np.argmax(counts_x > PIXELS)
    ys = (top + (np.arange(rows) + 0.5) * PIXELS).astype(int)
    xs = (left + (np.arange(columns) + 0.5) * PIXELS).astype(int)
    found: NDArray[np.floating] = grey[np.ix_(ys, xs)]
    return found


def test_brightness_grows_with_the_weight_and_nothing_is_transposed() -> None:
    found = cells(MapPicture([PANEL]).draw([HAND_MADE]).rgb(), 3, 5)
    assert set(np.argwhere(found == found.max()).tolist()[0]) <= {0, 2}
    assert found[0, 2] == found[2, 0] == found.max()
    assert found[0, 0] == found[1, 3] == found.min()
    assert found.min() < found[0, 1] == found[1, 4] < found.max()


def test_the_scale_does_not_depend_on_the_map() -> None:
    picture = MapPicture([PANEL])
    alone, beside_one = np.zeros((3, 5)), np.zeros((3, 5))
    alone[1, 1] = beside_one[1, 1] = 0.25
    beside_one[2, 4] = 1.0
    first, second = (brightness(picture.draw([weights]).rgb()) for weights in (alone, beside_one))
    difference = np.argwhere(first != second)
    assert 0 < len(difference) <= (PIXELS + 2) ** 2  # only the one cell


def test_a_cell_is_at_least_eight_pixels() -> None:
    picture = MapPicture([PANEL])
    one = HAND_MADE.copy()
    one[1, 2] = 1.0
    changed = np.argwhere(brightness(picture.draw([HAND_MADE]).rgb()) != brightness(picture.draw([one]).rgb()))
    assert (changed.max(axis=0) - changed.min(axis=0) >= 7).all()


def test_a_second_drawing_leaves_nothing_of_the_first() -> None:
    picture = MapPicture([PANEL])
    picture.draw([np.ones((3, 5))]).rgb()
    assert np.array_equal(picture.draw([HAND_MADE]).rgb(), MapPicture([PANEL]).draw([HAND_MADE]).rgb())


def test_panels_stand_side_by_side() -> None:
    other = Panel("xy", ["p", "q"], ["r"], "written", "read")
    one, two = (
        MapPicture([PANEL]).draw([HAND_MADE]).rgb(),
        MapPicture([PANEL, other]).draw([HAND_MADE, np.ones((2, 1))]).rgb(),
    )
    assert two.shape[1] > one.shape[1]
    assert two.shape[0] == one.shape[0]


def test_a_map_that_does_not_fit_its_frame_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a map of shape \(5, 3\) does not fit a panel of shape \(3, 5\)$"):
        MapPicture([PANEL]).draw([HAND_MADE.T]).rgb()


def labels(picture: MapPicture, *texts: str) -> list[Label]:
    return [label for label in picture.labels if label.text in texts]


def test_the_symbols_stand_on_both_axes() -> None:
    picture = MapPicture([PANEL])
    rows, columns = labels(picture, *"xyz"), labels(picture, *"abcde")
    assert "".join(label.text for label in sorted(rows, key=lambda label: label.top)) == "xyz"
    assert "".join(label.text for label in sorted(columns, key=lambda label: label.left)) == "abcde"
    assert len({label.top for label in columns}) == 1
    assert len({label.right for label in rows}) == 1
    [read], [written] = labels(picture, "read"), labels(picture, "written")
    assert read.bottom <= columns[0].top
    assert written.right <= min(label.left for label in rows)
    assert (read.upwards, written.upwards) == (False, True)


def test_the_text_of_an_axis_stands_beside_its_cell() -> None:
    """The cell painted in row 1, column 2 lies below the text `c` and to the right of the text `y`."""
    picture = MapPicture([PANEL])
    one = np.zeros((3, 5))
    one[1, 2] = 1.0
    rows, columns = np.nonzero((picture.draw([one]).rgb() == COLOURS[-1]).all(axis=-1))
    [above], [beside] = labels(picture, "c"), labels(picture, "y")
    assert above.bottom == rows.min() - PIXELS - PAD
    assert (above.left + above.right) / 2 == pytest.approx((columns.min() + columns.max() + 1) / 2, abs=0.6)
    assert beside.right == columns.min() - 2 * PIXELS - PAD
    assert (beside.top + beside.bottom) / 2 == pytest.approx((rows.min() + rows.max() + 1) / 2, abs=0.6)


def test_a_label_is_drawn_where_it_says_and_reads_as_it_says() -> None:
    picture = MapPicture([Panel("t", ["x"], ["ab"], "rows", "columns")])
    drawn = picture.draw([np.ones((1, 1))]).pixels
    upright = Writer(round(CELL * 0.62))("ab").pixels
    [label] = labels(picture, "ab")
    assert np.array_equal(drawn[label.top : label.bottom, label.left : label.right], np.rot90(upright))
    assert (upright < LEVELS + 10).any()  # there is ink


def test_no_text_lies_on_cells_or_on_other_text() -> None:
    narrow = Panel("a rather long title", ["x"], ["<bos>"], "symbol being written", "symbol of the source")
    picture = MapPicture([narrow, PANEL, narrow, PANEL], per_row=3, note="note")
    taken = np.zeros(picture.draw([np.ones((1, 1)), HAND_MADE] * 2).pixels.shape, dtype=int)
    for label in picture.labels:
        taken[label.top : label.bottom, label.left : label.right] += 1
    assert taken.max() == 1
    ones = picture.draw([np.ones((1, 1)), np.ones((3, 5))] * 2).pixels == LEVELS - 1
    assert ones.sum() == 2 * (1 + 15) * PIXELS**2
    assert not (ones & (taken > 0)).any()


def test_the_palette_is_brighter_for_more_weight() -> None:
    bright = COLOURS.astype(float) @ [0.299, 0.587, 0.114]
    assert (bright[3:] > bright[:-3]).all()  # three steps: bytes are rounded
    assert level(np.array([0.0, 1.0, 0.5])).tolist() == [0, LEVELS - 1, 100]
    assert PALETTE.shape == (256, 3)


def test_right_cells_are_outlined_and_keep_their_colour_inside() -> None:
    panel = replace(PANEL, outlined=[(0, 2), (2, 4)])
    plain, outlined = (MapPicture([one]).draw([HAND_MADE]).rgb() for one in (PANEL, panel))
    assert np.array_equal(cells(plain, 3, 5), cells(outlined, 3, 5))
    ys, xs = np.nonzero((outlined == OUTLINE).all(axis=-1))
    middles = {(round(float(y)), round(float(x))) for y, x in zip(ys // PIXELS, xs // PIXELS, strict=True)}
    assert len(ys) == 2 * (PIXELS**2 - (PIXELS - 4) ** 2)  # two frames of two pixels
    assert max(ys) - min(ys) + 1 == 3 * PIXELS
    assert max(xs) - min(xs) + 1 == 3 * PIXELS
    assert len(middles) >= 2
    assert not (plain == OUTLINE).all(axis=-1).any()


def test_panels_stand_in_rows_of_the_given_number() -> None:
    one = MapPicture([PANEL] * 2).draw([HAND_MADE] * 2).rgb()
    grid = MapPicture([PANEL] * 5, per_row=2).draw([HAND_MADE] * 5).rgb()
    assert grid.shape[1] == one.shape[1]
    assert grid.shape[0] > 2.5 * one.shape[0] - 5 * PIXELS
    bright = (grid == COLOURS[-1]).all(axis=-1).sum()
    assert bright == 5 * 2 * PIXELS**2


def test_fewer_panels_than_fit_in_a_row_take_no_more_room() -> None:
    assert np.array_equal(
        MapPicture([PANEL], 8).draw([HAND_MADE]).rgb(), MapPicture([PANEL]).draw([HAND_MADE]).rgb()
    )


def test_labels_can_be_left_to_the_edges() -> None:
    picture = MapPicture([PANEL, replace(PANEL, labelled=(False, True))])
    assert len(labels(picture, *"xyz")) == 3
    assert len(labels(picture, *"abcde")) == 10
    assert len(labels(picture, "written")) == 1


def test_long_text_is_cut_and_what_cannot_be_printed_is_not() -> None:
    panel = Panel("$x^2$ and $", ["$"], ["a_really_long_symbol", "a\nb"], "rows", "columns")
    texts = [label.text for label in MapPicture([panel]).labels]
    assert {"$x^2$ and $", "$", "a_really_lo…", "a�b"} <= set(texts)


def test_weights_out_of_range_are_drawn_as_the_nearest_weight() -> None:
    picture = MapPicture([PANEL])
    far = np.where(HAND_MADE > 0.5, 1.00001, np.where(HAND_MADE < 0.5, -0.00001, 0.5))
    assert np.array_equal(picture.draw([far]).rgb(), picture.draw([HAND_MADE]).rgb())


def test_a_saved_picture_is_the_picture(tmp_path: Path) -> None:
    drawn = MapPicture([PANEL]).draw([HAND_MADE])
    drawn.save(tmp_path / "map.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "map.png").convert("RGB")), drawn.rgb())


@pytest.mark.parametrize("text", ["two\nlines", "tab\there", "\udcff\ud800", "\x00", "\u2028", "\r\n"])
def test_any_text_can_be_written_anywhere(text: str) -> None:
    panel = Panel(text, [text, "a"], [text, "b"], text, text)
    picture = MapPicture([panel], note=text).draw([np.eye(2)])
    assert picture.pixels.size
    assert plain(text).isprintable()
    assert len(plain(text)) == len(text)
    plain(text).encode()
