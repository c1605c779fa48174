"""Pictures of maps: bright where the weight is, not transposed, the same scale always, no global state."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from lookback.figures import CELL, DPI, MapPicture, Panel

PIXELS = CELL * DPI
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
    found = cells(MapPicture([PANEL]).draw([HAND_MADE]), 3, 5)
    assert set(np.argwhere(found == found.max()).tolist()[0]) <= {0, 2}
    assert found[0, 2] == found[2, 0] == found.max()
    assert found[0, 0] == found[1, 3] == found.min()
    assert found.min() < found[0, 1] == found[1, 4] < found.max()


def test_the_scale_does_not_depend_on_the_map() -> None:
    picture = MapPicture([PANEL])
    alone, beside_one = np.zeros((3, 5)), np.zeros((3, 5))
    alone[1, 1] = beside_one[1, 1] = 0.25
    beside_one[2, 4] = 1.0
    first, second = (brightness(picture.draw([weights])) for weights in (alone, beside_one))
    difference = np.argwhere(first != second)
    assert 0 < len(difference) <= (PIXELS + 2) ** 2  # only the one cell


def test_a_cell_is_at_least_eight_pixels() -> None:
    picture = MapPicture([PANEL])
    one = HAND_MADE.copy()
    one[1, 2] = 1.0
    changed = np.argwhere(brightness(picture.draw([HAND_MADE])) != brightness(picture.draw([one])))
    assert (changed.max(axis=0) - changed.min(axis=0) >= 7).all()


def test_a_second_drawing_leaves_nothing_of_the_first() -> None:
    picture = MapPicture([PANEL])
    picture.draw([np.ones((3, 5))])
    assert np.array_equal(picture.draw([HAND_MADE]), MapPicture([PANEL]).draw([HAND_MADE]))


def test_panels_stand_side_by_side() -> None:
    other = Panel("xy", ["p", "q"], ["r"], "written", "read")
    one, two = MapPicture([PANEL]).draw([HAND_MADE]), MapPicture([PANEL, other]).draw([HAND_MADE, np.ones((2, 1))])
    assert two.shape[1] > one.shape[1]
    assert two.shape[0] == one.shape[0]


def test_a_map_that_does_not_fit_its_frame_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a map of shape \(5, 3\) does not fit a panel of shape \(3, 5\)$"):
        MapPicture([PANEL]).draw([HAND_MADE.T])


def test_drawing_needs_no_display_and_leaves_pyplot_alone() -> None:
    code = (
        "import numpy as np, matplotlib\n"
        "before = matplotlib.rcParams._get_backend_or_none()\n"
        "from lookback.figures import MapPicture, Panel\n"
        "for _ in range(30): MapPicture([Panel('t', ['a'], ['b', 'c'], 'r', 'c')]).draw([np.eye(1, 2)])\n"
        "assert matplotlib.rcParams._get_backend_or_none() == before\n"
        "import sys; assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {"MPLBACKEND": "TkAgg", "DISPLAY": "localhost:64", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_symbols_stand_on_both_axes() -> None:
    axes, _ = MapPicture([PANEL])._images[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c", "d", "e"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y", "z"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("read", "written")
