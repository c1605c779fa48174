"""Sort."""

import numpy as np

from lookback.tasks.base import Ids
from lookback.tasks.synthetic import Synthetic


class Sort(Synthetic):
    """Write the letters of the source in the order of the alphabet.

    cab -> abc
    hello -> ehllo

    With alphabet_size=5 it is Bucket Sort in Delétang et al. 2023.
    """

    def target(self, source: Ids) -> Ids:
        """The ids in ascending order, which is the order of the alphabet."""
        return np.sort(source)

    def alignment(self, source: Ids) -> Ids:
        """Place t comes from where the t-th smallest letter stood; equal letters keep their order."""
        return np.argsort(source, kind="stable")
