"""How a text is cut into symbols, and put together again."""

import unicodedata
from collections.abc import Sequence
from typing import Literal

Unit = Literal["character", "word"]
Normal = Literal["none", "NFC"]
BETWEEN: dict[Unit, str] = {"character": "", "word": " "}  # what stands between two symbols in a text


def split(text: str, unit: Unit) -> list[str]:
    """The symbols of a text.

    Args:
        text: any.
        unit: characters are Unicode code points. Words stand between spaces (U+0020), of which several in a row, or
            at the ends, count as one or none; any other kind of space is part of a word.
    """
    if unit == "character":
        return list(text)
    words = text.split(" ")
    return [word for word in words if word] if "" in words else words


def count(text: str, unit: Unit) -> int:
    """How many symbols a text has."""
    if unit == "character":
        return len(text)
    if not text or "  " in text or text[0] == " " or text[-1] == " ":
        return len(split(text, unit))
    return text.count(" ") + 1


def tidy(text: str, unit: Unit) -> str:
    """The one text of the same symbols that has a space between words, and none around them."""
    loose = unit == "word" and ("  " in text or text[:1] == " " or text[-1:] == " ")
    return join(split(text, unit), unit) if loose else text


def join(symbols: Sequence[str], unit: Unit) -> str:
    """The text of some symbols."""
    return BETWEEN[unit].join(symbols)


def normalised(text: str, form: Normal) -> str:
    """A text in this Unicode normal form; as it is for `none`.

    NFC writes a letter and its accent as one character where Unicode has such a one, so that two spellings that
    look alike are alike.
    """
    return text if form == "none" else unicodedata.normalize(form, text)
