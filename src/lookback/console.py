"""Where a person reads: a console that survives a closed pipe, and the shades that it can print."""

import os
import sys

from rich.console import Console
from rich.markup import escape

SHADES = " ░▒▓█"
PLAIN_SHADES = " .:*#"


class SteadyConsole(Console):
    """A console that falls silent when nobody reads any more (`| head`), instead of ending the program."""

    def on_broken_pipe(self) -> None:
        """Called by rich, which would exit."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(text: str) -> str:
    """A text that cannot move the cursor or change colours, whatever it holds."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def safe(text: str) -> str:
    """A text as markup that is shown as it is, and steers no terminal."""
    return escape(printable(text))


def shades(console: Console) -> str:
    """The lesson's five shades from light to dark, or plain characters where those cannot be printed."""
    try:
        SHADES.encode(console.encoding)
    except UnicodeEncodeError:
        return PLAIN_SHADES
    return SHADES
