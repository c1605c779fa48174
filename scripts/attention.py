"""See where trained runs look, and ask what if they looked elsewhere: `python scripts/attention.py --help`."""

import sys

if __name__ == "__main__":
    try:
        from lookback.look import main
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
