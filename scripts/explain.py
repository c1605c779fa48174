"""Make a prompt that explains attention by a trained model's own numbers: `python scripts/explain.py --help`."""

import sys

if __name__ == "__main__":
    try:
        from lookback.explain import main
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
