"""Which font shows a text: matplotlib's own, or one of the system's for what that lacks, such as Chinese."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import matplotlib
from matplotlib.ft2font import FT2Font

USUAL = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
ADVICE = "fonts-noto-cjk on Debian and Ubuntu has most"
FIRST = ("cjk", "sourcehan", "wqy", "pingfang", "msyh", "simhei", "hei", "notosans", "unifont")  # in names of files


@cache
def letters(font: Path) -> frozenset[int]:
    """The letters that a font has, as numbers of Unicode; none if it cannot be read."""
    try:
        return frozenset(FT2Font(str(font)).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


@cache
def others() -> tuple[Path, ...]:
    """The fonts of this system as it is now, those with many letters first."""
    from matplotlib.font_manager import findSystemFonts  # noqa: PLC0415 (slow, and few texts need it)

    def place(path: str) -> tuple[int, str]:
        name = re.sub("[^a-z]", "", Path(path).stem.lower())
        return next((number for number, part in enumerate(FIRST) if part in name), len(FIRST)), path

    return tuple(Path(path) for path in sorted(findSystemFonts(), key=place) if "lastresort" not in path.lower())


@cache
def font_for(text: str) -> Path:
    """The usual font, or the first other one that has all letters of a text; the usual one if there is none."""
    wanted = {ord(letter) for letter in text}
    if wanted <= letters(USUAL):
        return USUAL
    return next((font for font in others() if wanted <= letters(font)), USUAL)


def unshown(texts: Iterable[str]) -> list[str]:
    """The letters that no font here has; pictures show boxes in their place."""
    every = sorted({letter for text in texts for letter in text if letter.isprintable()})
    return [letter for letter in every if ord(letter) not in letters(font_for(letter))]
