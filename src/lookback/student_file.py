"""Somebody's file of Python: run it, call what is in it, and say in one line what went wrong."""

import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

NAME = "student_file"  # what the file is called while it runs: not __main__, so that its own trials stay out
LONGEST = 160  # letters of somebody's error message


class TroubleError(ValueError):
    """Why something could not be judged.

    Args:
        what: one line.
        hint: what to do about it.
        called: whether something came back, if not what was asked for.
    """

    def __init__(self, what: str, hint: str = "", *, called: bool = False) -> None:
        super().__init__(what)
        self.hint = hint
        self.called = called


@contextmanager
def _quiet() -> Iterator[None]:
    """Swallow what is printed, warned and asked for. No window opens for a picture."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.enter_context(redirect_stderr(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(np.errstate(all="ignore"))
        warnings.simplefilter("ignore")
        keyboard, sys.stdin = sys.stdin, io.StringIO()
        try:
            yield
        finally:
            sys.stdin = keyboard


def load(path: Path) -> ModuleType:
    """Run a file, in this process; files beside it can be imported.

    Raises:
        TroubleError: if it cannot be read or compiled, or raises something, with the line where it did.
    """
    try:
        with _quiet():
            code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise TroubleError(f"cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise TroubleError(f"{where}{type(error).__name__}: {error.msg}") from None
    module = ModuleType(NAME)
    module.__file__ = str(path)
    sys.modules[NAME] = module  # dataclasses look their module up
    paths = list(sys.path)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with _quiet():
            exec(code, vars(module))
    except (Exception, SystemExit) as error:
        raise TroubleError(_told(error, str(path))) from None
    finally:
        sys.path[:] = paths
    return module


def call(module: ModuleType, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
    """Call something of the file, with copies of the arrays.

    Raises:
        TroubleError: if it raises something, with the line where it did.
    """
    given = [np.array(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments]
    try:
        with _quiet():
            return function(*given, **keywords)
    except (Exception, SystemExit) as error:
        hint = next((hint for start, hint in HINTS.items() if str(error).startswith(start)), "")
        raise TroubleError(f"raises an error at {_told(error, str(module.__file__))}", hint) from None


HINTS = {  # by what the message begins with
    "axes don't match array": "there are more axes than transpose names: K.swapaxes(-1, -2) swaps the last two",
    "operands could not be broadcast": "compare the shapes; a sum with keepdims=True keeps its axis",
    "matmul": "compare the shapes of both: .T turns all axes round, .swapaxes(-1, -2) swaps the last two",
}


def _told(error: BaseException, path: str) -> str:
    """An error in one line, with the last line of the file that it came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    words = " ".join(str(error).split())
    message = words if len(words) <= LONGEST else words[: LONGEST - 3] + "..."
    where = f"line {lines[-1]}: " if lines else "its call: "
    return f"{where}{type(error).__name__}" + (f": {message}" if message else "")
