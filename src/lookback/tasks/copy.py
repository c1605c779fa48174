"""Copy."""

import numpy as np

from lookback.tasks.base import Ids
from lookback.tasks.synthetic import Synthetic


class Copy(Synthetic):
    """Write what was read.

    abc -> abc
    hello -> hello
    """

    def target(self, source: Ids) -> Ids:
        """The source itself."""
        return source

    def alignment(self, source: Ids) -> Ids:
        """Place t comes from place t."""
        return np.arange(len(source))
