"""Walk through the lesson in the terminal, step by step: `python scripts/lesson.py --help`."""

import argparse
import sys
from contextlib import suppress
from typing import Any

try:
    from lookback import walk, walk_page
    from lookback.console import SteadyConsole
    from lookback.walk_parts import Setting
    from lookback.walk_words import WORDS
except ModuleNotFoundError as error:
    sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")

EPILOG = """\
examples:
  lesson.py --step softmax masks                       some steps, by name or number
  lesson.py --sentence "猫 坐 在 垫子 上" --language zh
"""


def main() -> int:
    """Read the arguments and show the steps; 2 for a wrong command line."""
    parser = argparse.ArgumentParser(
        description="What the lesson computes, step by step, with the shapes. Only the last step needs torch.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(step.__name__ for step in walk.STEPS)
    parser.add_argument("--language", choices=list(WORDS), default="en", help="of all that is said (default: en)")
    parser.add_argument("--step", nargs="+", default=[], metavar="STEP", help=f"by number or name: {names}")
    parser.add_argument("--sentence", metavar="TEXT", help="words with spaces between them")
    parser.add_argument("--seed", type=int, metavar="N", help="of the random numbers (default: the lesson's)")
    parser.add_argument("--pause", action="store_true", help="on a terminal, wait for Enter between steps")
    typed = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    changed: dict[str, Any] = {} if typed.seed is None else {"seed": typed.seed}
    if typed.sentence is not None:
        changed["sentence"] = tuple(typed.sentence.split())
    try:
        steps, setting = walk.chosen(typed.step), Setting(**changed)
    except ValueError as error:
        print(f"lookback: {error}", file=sys.stderr)
        return 2
    console = SteadyConsole(highlight=False, emoji=False)
    pause = typed.pause and sys.stdin.isatty() and sys.stdout.isatty()
    walk_page.walk(console, steps, setting, typed.language, pause)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"lookback: {error}")
