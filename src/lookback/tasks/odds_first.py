"""Odds first."""

import numpy as np

from lookback.tasks.base import Ids
from lookback.tasks.synthetic import Synthetic


class OddsFirst(Synthetic):
    """Write the 1st, 3rd, 5th, ... letter, and then the 2nd, 4th, 6th, ...

    abcde -> acebd
    abcdef -> acebdf

    Odds First in Delétang et al. 2023, with alphabet_size=2 there.
    """

    def target(self, source: Ids) -> Ids:
        """Every second letter from the first on, then every second one from the second on."""
        return source[self.alignment(source)]

    def alignment(self, source: Ids) -> Ids:
        """Places 0, 2, 4, ... and then 1, 3, 5, ..., counted from 0."""
        places = np.arange(len(source))
        return np.concatenate([places[0::2], places[1::2]])
