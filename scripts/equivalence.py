"""Check that the lesson, our attention and torch's agree; or check your own: `scripts/equivalence.py --help`."""

import argparse
import json
import sys
from pathlib import Path

try:
    from lookback.console import SteadyConsole
    from lookback.student import STEPS
    from lookback.verdicts import check_file, check_ours
except ModuleNotFoundError as error:
    sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")


def main() -> int:
    """Check, show what was found, and write it if asked to."""
    parser = argparse.ArgumentParser(
        description="Compare the lesson's NumPy attention, ours and torch's own, and try whether anything leaks.",
        epilog="Exit code: 0 if all is right, 1 if something is wrong or cannot be checked, 2 for wrong arguments.",
    )
    own = f"check your own NumPy attention instead: a file of Python with any of {', '.join(STEPS)}"
    parser.add_argument("--file", type=Path, metavar="PATH", help=own)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write what was found there, too")
    arguments = parser.parse_args()
    if arguments.json and not arguments.json.parent.is_dir():
        parser.error(f"argument --json: no such folder: {arguments.json.parent}")
    if arguments.json and arguments.json.is_dir():
        parser.error(f"argument --json: must be a file, but {arguments.json} is a folder")
    console = SteadyConsole(highlight=False)
    try:
        found = check_file(console, arguments.file) if arguments.file else check_ours(console)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"equivalence: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
