"""Write a target for each line of standard input: `python scripts/predict.py --help`."""

import sys

if __name__ == "__main__":
    try:
        from lookback.predict import main
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
