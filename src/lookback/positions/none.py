"""No positions at all."""

from lookback.positions.base import Positions


class NoPositions(Positions):
    """All doors stay shut.

    An encoder then sees a set; a decoder can still tell places apart, because its causal mask shows each query
    a different number of keys (Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length
    Generalization in Transformers").
    """
