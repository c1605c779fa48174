"""Reverse."""

import numpy as np

from lookback.tasks.base import Ids
from lookback.tasks.synthetic import Synthetic


class Reverse(Synthetic):
    """Write what was read, last letter first.

    abc -> cba
    hello -> olleh
    """

    def target(self, source: Ids) -> Ids:
        """The source backwards."""
        return source[::-1]

    def alignment(self, source: Ids) -> Ids:
        """Place t comes from place length - 1 - t."""
        return np.arange(len(source))[::-1]
