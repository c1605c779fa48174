"""Race ours against what people use today: `python scripts/benchmark.py --help`."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

try:
    from lookback import benchmark
    from lookback.console import SteadyConsole
except ModuleNotFoundError as error:
    sys.exit(f"{error}: run `make train` once, then use .venv/bin/python, or activate .venv")


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, but is {text}")
    return int(text)


def main() -> int:
    """Measure, print a table, and write what was measured if asked to."""
    names = ", ".join(section.__name__ for section in benchmark.SECTIONS)
    parser = argparse.ArgumentParser(
        description="Race ours against nn.Transformer and, where it is installed, x-transformers, on the CPU.",
        epilog="Other programs disturb the threads; OMP_NUM_THREADS=1 before the command gives steadier ratios.",
    )
    parser.add_argument("--sections", nargs="+", default=[], metavar="NAME", help=f"of {names} (default: all)")
    parser.add_argument("--rounds", type=positive, default=15, help="timed rounds (default %(default)s)")
    parser.add_argument("--steps", type=positive, default=10, help="steps in a round (default %(default)s)")
    parser.add_argument("--overrides", nargs="+", default=[], metavar="KEY=VALUE", help="of configs/train.yaml")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every round's numbers there")
    arguments = parser.parse_args()
    if arguments.json and (arguments.json.is_dir() or not arguments.json.parent.is_dir()):
        parser.error(f"argument --json: no such folder, or no file: {arguments.json}")
    try:
        benchmark.chosen(arguments.sections)
    except ValueError as error:
        parser.error(f"argument --sections: {error}")
    progress = SteadyConsole(stderr=True, highlight=False)
    try:
        what = (arguments.rounds, arguments.steps, arguments.overrides, arguments.sections)
        report = benchmark.measure(*what, lambda name: progress.print(f"measuring: {name}"))
        try:  # first the file, then the table: what took minutes must not get lost with either
            if arguments.json:
                arguments.json.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
        finally:
            SteadyConsole().print(benchmark.table(report))
    except (OSError, ValueError) as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
