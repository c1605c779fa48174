"""Train several models on equal terms and compare them: `python scripts/compare.py --help`."""

import sys

if __name__ == "__main__":
    try:
        from lookback.compare import main
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
