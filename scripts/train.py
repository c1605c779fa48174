"""Train one model on one task: `python scripts/train.py --help`."""

import sys

from lookback.experiment import main

if __name__ == "__main__":
    sys.exit(main())
