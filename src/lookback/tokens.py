"""The four control tokens, and how symbols become integer ids.

Every vocabulary starts with the same four control ids. User text can never yield PAD, BOS or EOS: `encode` looks
symbols up among the vocabulary's own only, so a word that happens to read "<eos>" is a word, or UNK.
"""

from collections.abc import Iterable, Sequence

PAD, BOS, EOS, UNK = 0, 1, 2, 3
CONTROL_NAMES = ("<pad>", "<bos>", "<eos>", "<unk>")
FIRST_SYMBOL = len(CONTROL_NAMES)


class Vocabulary:
    """A fixed order of symbols; symbol number i has the id FIRST_SYMBOL + i.

    Args:
        symbols: the distinct symbols, in the order of their ids.

    Raises:
        ValueError: if a symbol occurs twice.
    """

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self._ids = {symbol: FIRST_SYMBOL + number for number, symbol in enumerate(self.symbols)}
        if len(self._ids) != len(self.symbols):
            twice = sorted({symbol for symbol in self.symbols if self.symbols.count(symbol) > 1})
            raise ValueError(f"vocabulary: symbols must be distinct, but these occur twice: {twice}")
        names = list(CONTROL_NAMES)
        while names[UNK] in self._ids:  # a word of a corpus may read so, and is not what is unknown
            names[UNK] = f"<{names[UNK]}>"
        self._texts = (*names, *self.symbols)

    def __len__(self) -> int:
        """Number of ids: the control tokens and the symbols."""
        return FIRST_SYMBOL + len(self.symbols)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """Return the id of each symbol; UNK for one that the vocabulary does not have."""
        return [self._ids.get(symbol, UNK) for symbol in symbols]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the text of each id; control ids read as their names, such as `<eos>`; UNK never as a symbol.

        Raises:
            ValueError: if there is no such id.
        """
        texts, ids = self._texts, list(ids)
        for i in ids:
            if not 0 <= i < len(texts):
                raise ValueError(f"an id must be 0 to {len(texts) - 1}, but is {i}")
        return [texts[i] for i in ids]
