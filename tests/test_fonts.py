"""A text is drawn in a font that has its letters; where none has, that is known."""

from pathlib import Path

import matplotlib
import pytest

from lookback import fonts
from lookback.figures import Writer

FOLDER = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SIGNS = FOLDER / "STIXGeneral.ttf"


@pytest.fixture
def rare(monkeypatch: pytest.MonkeyPatch) -> str:
    """A letter that only another font has, which is the second of the system's."""
    monkeypatch.setattr(fonts, "others", lambda: (FOLDER / "cmr10.ttf", SIGNS))
    fonts.font_for.cache_clear()
    only = fonts.letters(SIGNS) - fonts.letters(fonts.USUAL) - fonts.letters(FOLDER / "cmr10.ttf")
    return chr(min(number for number in only if 0x2000 < number < 0xE000))


def test_plain_letters_are_drawn_in_the_usual_font_and_no_other_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never() -> tuple[Path, ...]:
        raise AssertionError("looked for fonts")

    monkeypatch.setattr(fonts, "others", never)
    fonts.font_for.cache_clear()
    assert fonts.font_for("attention ʃ ж <eos>") == fonts.USUAL


def test_a_letter_that_it_lacks_is_drawn_in_a_font_that_has_it(rare: str) -> None:
    assert fonts.font_for(f"a{rare}") == SIGNS
    assert fonts.unshown([f"a{rare}"]) == []
    with_it, box = Writer(20)(rare).pixels, Writer(20)("\U0001f9ff\U0001f9ff"[:1]).pixels
    assert with_it.shape != box.shape or (with_it != box).any()


def test_letters_of_no_font_are_named_and_drawn_all_the_same(rare: str) -> None:
    assert fonts.unshown(["a你", rare, "好你", "\n"]) == sorted("你好")
    assert fonts.font_for("你") == fonts.USUAL
    assert Writer(20)("你").pixels.size > 0


def test_fonts_known_for_many_letters_come_first_and_boxes_for_all_are_no_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        "/f/zz.ttf",
        "/f/LastResortHE-Regular.ttf",
        "/f/NotoSansCJK-Regular.ttc",
        "/f/wqy-microhei.ttc",
        "/f/a.ttf",
    ]
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: found)
    fonts.others.cache_clear()
    try:
        names = [path.name for path in fonts.others()]
    finally:
        fonts.others.cache_clear()
    assert names == ["NotoSansCJK-Regular.ttc", "wqy-microhei.ttc", "a.ttf", "zz.ttf"]


def test_a_file_that_is_no_font_has_no_letters(tmp_path: Path) -> None:
    (tmp_path / "no.ttf").write_bytes(b"no font")
    assert fonts.letters(tmp_path / "no.ttf") == frozenset()
