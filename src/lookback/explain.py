"""The command `python scripts/explain.py RUN --source abc`: a prompt that explains a head of a trained model.

The prompt is `outputs/prompt-attention-explainer.md`, whose worked example makes room for the model's own numbers.
"""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lookback import results, subjects
from lookback.console import SteadyConsole
from lookback.explanation import Explained, numbers
from lookback.files import writable, write_whole
from lookback.interventions import head_name, layers, parse_head
from lookback.lookups import lookups
from lookback.probes import Look, look
from lookback.subjects import Subject
from lookback.terminal import guarded, shown_path

HERE = Path(__file__).parent
NAME = "outputs/prompt-attention-explainer.md"
TEMPLATE = next(path for path in (HERE / NAME, HERE.parents[1] / NAME) if path.is_file())
BEGIN, END = "<!-- numbers: begin -->", "<!-- numbers: end -->"
LONGEST = 30  # symbols of a source; the table of a longer one is too wide to be read
EPILOG = """\
examples:
  explain.py RUN --source abc                              the prompt, here
  explain.py RUN --source abc --place cross/layer0/head1   on another head
  explain.py RUN --source abc --output prompt.md           into a file
Paste what comes out into a chat with any language model.
"""


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    made = argparse.ArgumentParser(
        prog="explain.py",
        description="Make a prompt: explain attention by the numbers of one head of a trained run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    made.add_argument("--source", metavar="TEXT", help="the string to read (default: a held-out one)")
    made.add_argument(
        "--place",
        metavar="HEAD",
        help="the head, as cross/layer1/head0 (default: the one that has learned the task, else the clearest)",
    )
    made.add_argument("--output", type=Path, metavar="FILE", help="where the prompt goes (default: here)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: without the program's name; those of the process when left out.

    Returns:
        the exit code, as in `guarded`.
    """
    return guarded(lambda: _run(parser().parse_args(arguments)))


def _run(typed: argparse.Namespace) -> None:
    """Print the prompt, or write it."""
    output = None if typed.output is None else writable("--output", typed.output.expanduser())
    one = subjects.subject(typed.run.expanduser())
    source = subjects.common_string([one]) if typed.source is None else typed.source
    prompt = filled(numbers(explained(one, source, typed.place)))
    console = SteadyConsole(highlight=False, emoji=False)
    if output is None:
        console.print(prompt, end="", markup=False, soft_wrap=True)
    else:
        write_whole(output, prompt.encode())
        console.print(f"prompt   {shown_path(output)}", markup=False, soft_wrap=True)


def filled(text: str) -> str:
    """The prompt with other numbers in the place of its worked example."""
    before, begin, rest = TEMPLATE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def explained(one: Subject, text: str, wanted: str | None) -> Explained:
    """Let a run write a string freely, and look at one of its heads while it does.

    Args:
        one: the run.
        text: the string.
        wanted: the head; None = the one that has learned the task, else the clearest on this string.

    Raises:
        ValueError: if the model has no attention or no such head, or the string is none of its task or too long.
    """
    if not layers(one.model):
        rule = "has no attention, so there is nothing to explain"
        raise ValueError(f"{one.name} {rule}: take a run of rnn_luong, rnn_bahdanau or transformer")
    if wanted is not None:
        parse_head(one.model, wanted)
    source = one.task.spell(text)
    if len(source) > LONGEST:
        raise ValueError(f"source must have at most {LONGEST} symbols to be explained, but has {len(source)}")
    shown = look(one.model, one.task, source, one.step, one.evaluate.extra_tokens)
    name, why = _chosen(one, shown) if wanted is None else (wanted, "it was asked for")
    place, head = parse_head(one.model, name)
    return Explained(one, shown, place, head, why, lookups(one.model, shown.probe, place, head))


def _chosen(one: Subject, shown: Look) -> tuple[str, str]:
    """The head that is explained if nobody asked for one, and why it is."""
    summary = results.read_summary(one.folder)
    with suppress(LookupError, TypeError, ValueError):  # of a summary that is not there, or of another model
        name, since = summary["learned_by"]["head"], summary["learned_by"]["since_step"]
        share = float(summary["alignment"][name]["largest"])
        parse_head(one.model, name)
        when = "" if since is None else f" (since step {since:,})"
        where = f"on validation strings, its weight is largest where the answer stands in {share:.0%} of rows"
        return name, f"it has learned the task{when}: {where}"
    clear = subjects.finding(one, [shown]).head
    if clear is None:
        return head_name(next(iter(shown.maps)), 0), "it is the model's first"
    if clear.score.weight is None:
        return clear.name, "it has the sharpest rows on this string (least entropy) of all heads of cross-attention"
    where = f"its weight where the answer stands is {clear.score.weight:.3f} on average on this string"
    return clear.name, f"it is the clearest of cross-attention: {where}"
