"""Somebody's file of Python: run it, call what is in it, and say in one line what went wrong."""

import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        super().__init__(printable(what))
        self.hint = hint
        self.called = called


class NotFiniteError(TroubleError):
    """Some of what came back is infinite or not a number: `found`."""

    def __init__(self, what: str, *, found: str) -> None:
        super().__init__(what, called=True)
        self.found = found


def printable(text: str) -> str:
    """A text whose letters that a terminal could obey, or that turn the direction of a line, are escaped."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


@contextmanager
def quiet() -> Iterator[None]:
    """Swallow what is printed, warned and asked for, open no window, and come back to this folder."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.enter_context(redirect_stderr(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(np.errstate(all="ignore"))
        warnings.simplefilter("ignore")
        keyboard, sys.stdin = sys.stdin, io.StringIO()
        folder = Path.cwd()
        try:
            yield
        finally:
            sys.stdin = keyboard
            os.chdir(folder)


@contextmanager
def caught(path: str) -> Iterator[None]:
    """Be quiet, and tell what the file raises, whatever its kind. Only Ctrl-C goes through.

    Raises:
        TroubleError: in place of what was raised.
    """
    try:
        with quiet():
            yield
    except TroubleError:
        raise
    except BaseException as error:
        if type(error) is KeyboardInterrupt:
            raise
        raise RaisedError(error, path) from None


def load(path: Path) -> ModuleType:
    """Run a file, in this process; files beside it can be imported.

    Raises:
        TroubleError: if it cannot be read or compiled, or raises something, with the line where it did.
    """
    code = _compiled(path)
    module = ModuleType(NAME)
    module.__file__ = str(path)
    sys.modules[NAME] = module  # dataclasses look their module up
    paths = list(sys.path)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with caught(str(path)):
            exec(code, vars(module))
    finally:
        sys.path[:] = paths
    return module


def _compiled(path: Path) -> CodeType:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TroubleError(f"cannot be read: {error.strerror}") from None
    try:
        with quiet():
            return compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise TroubleError(f"{where}{type(error).__name__}: {error.msg}") from None
    except (MemoryError, OverflowError, RecursionError, ValueError) as error:  # of what nests too deeply
        lines = text.splitlines()
        longest = max(range(len(lines)), key=lambda place: len(lines[place]))
        told = f"line {longest + 1}, the longest: {type(error).__name__}: {error}"
        raise TroubleError(told, "what is too deep for Python must be written in parts") from None


def call(module: ModuleType, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
    """Call something of the file, with copies of the arrays.

    Raises:
        TroubleError: if it raises something, with the line where it did.
    """
    given = [np.array(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments]
    try:
        with caught(str(module.__file__)):
            return function(*given, **keywords)
    except RaisedError as error:
        hint = next((hint for start, hint in HINTS.items() if error.message.startswith(start)), "")
        raise TroubleError(f"raises an error at {error}", hint) from None


HINTS = {  # by what the message begins with
    "axes don't match array": "there are more axes than transpose names: K.swapaxes(-1, -2) swaps the last two",
    "operands could not be broadcast": "compare the shapes; a sum with keepdims=True keeps its axis",
    "matmul": "compare the shapes of both: .T turns all axes round, .swapaxes(-1, -2) swaps the last two",
}


class RaisedError(TroubleError):
    """An error of the file, in one line, with the last line of the file that it came through.

    Args:
        error: what was raised.
        path: of the file.

    Attributes:
        error: the same.
        message: what it says of itself.
        inside: whether it came through the file.
    """

    def __init__(self, error: BaseException, path: str) -> None:
        trace = traceback.walk_tb(error.__traceback__)
        lines = [number for frame, number in trace if frame.f_code.co_filename == path]
        self.error = error
        self.message = printable(" ".join(_said(error).split()))
        self.inside = bool(lines)
        message = self.message if len(self.message) <= LONGEST else self.message[: LONGEST - 3] + "..."
        where = f"line {lines[-1]}: " if lines else "its call: "
        super().__init__(f"{where}{type(error).__name__}" + (f": {message}" if message else ""))


def _said(error: BaseException) -> str:
    """The message of an error, whose class may be the file's own and fail at that, too."""
    try:
        return str(error)
    except BaseException as again:
        if type(again) is KeyboardInterrupt:
            raise
        return "its message cannot be made"


def numbers(part: object) -> NDArray[np.floating]:
    """An array of finite numbers.

    Raises:
        TroubleError: if it is none.
    """
    none = f"returns {type(part).__name__}, which is no array of numbers"
    try:
        with caught(""):
            found = np.asarray(part)
            array: NDArray[np.floating] = found.real.astype(float)
    except RaisedError as error:
        more = "" if isinstance(part, str | list | tuple | dict) else f" ({error.message[:LONGEST]})"
        raise TroubleError(none + more, called=True) from None
    if np.iscomplexobj(found):
        told = f"gives complex numbers, with imaginary parts of up to {np.abs(found.imag).max():.2g}"
        raise TroubleError(told, "weights and outputs are real: use numbers of type float", called=True)
    if not np.isfinite(array).all():
        first = array[~np.isfinite(array)][0]
        raise NotFiniteError(f"gives {first} where all numbers that go in are small", found=str(first))
    return array
