"""Which font shows a text: matplotlib's own, or one of the system's for what that lacks, such as Chinese."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import matplotlib
from matplotlib.ft2font import FT2Font

USUAL = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
ADVICE = "fonts-noto-cjk on Debian and Ubuntu has most"
FIRST = ("CJK", "Han Sans", "WenQuanYi", "PingFang", "YaHei", "SimHei", "Hei", "Noto Sans", "Unifont")


@cache
def letters(font: Path) -> frozenset[int]:
    """The letters that a font has, as numbers of Unicode; none if it cannot be read."""
    try:
        return frozenset(FT2Font(str(font)).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


@cache
def others() -> tuple[Path, ...]:
    """The fonts of this system, those with many letters first."""
    from matplotlib.font_manager import fontManager  # noqa: PLC0415 (it looks for all fonts, which few need)

    def place(font: tuple[str, str]) -> tuple[int, str]:
        found = [number for number, part in enumerate(FIRST) if part in font[0]]
        return (found[0] if found else len(FIRST), font[1])

    return tuple(
        Path(path) for _, path in sorted({(font.name, font.fname) for font in fontManager.ttflist}, key=place)
    )


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
