"""Duplicate."""

import numpy as np

from lookback.tasks.base import Ids
from lookback.tasks.synthetic import Synthetic


class Duplicate(Synthetic):
    """Write what was read, twice.

    abc -> abcabc
    hello -> hellohello

    Duplicate String in Delétang et al. 2023, with alphabet_size=2 there.
    """

    def target(self, source: Ids) -> Ids:
        """The source and then the source again: (source,) -> (2 x source,)."""
        return np.tile(source, 2)

    def alignment(self, source: Ids) -> Ids:
        """Place t comes from place t, counted from the start again once the source is over."""
        return np.tile(np.arange(len(source)), 2)
