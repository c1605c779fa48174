"""Count what trained runs get right in a file of pairs: `python scripts/evaluate.py --help`."""

import sys

if __name__ == "__main__":
    try:
        from lookback.score_file import main
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
