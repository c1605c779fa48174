"""Ranges of settings, written as types, so that a signature says what it accepts and `config.py` can check it.

And the one rule that more than one room needs.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt, MinLen

PositiveInt = Annotated[int, Gt(0), Lt(2**31)]
NonNegativeInt = Annotated[int, Ge(0), Lt(2**31)]
Seed = Annotated[int, Ge(0), Lt(2**63)]
PositiveFloat = Annotated[float, Gt(0.0)]
NonNegativeFloat = Annotated[float, Ge(0.0)]
Clip = Annotated[int, Gt(0), Le(4096)]  # largest distance that a table tells apart
Gain = Annotated[float, Gt(0.0), Le(1e4)]
Address = list[Annotated[int, Ge(-1000), Le(1000)]]
File = Annotated[str, "file"]  # a path; a relative one is taken from where the command was typed
Share = Annotated[float, Gt(0.0), Lt(1.0)]
Fraction = Annotated[float, Ge(0.0), Lt(1.0)]
AtLeastOne = MinLen(1)
Lengths = Annotated[list[PositiveInt], AtLeastOne]
DrawnLengths = Annotated[list[Annotated[int, Gt(0), Le(64)]], AtLeastOne]  # more would not fit a picture


def head_width(d_model: int, num_heads: int) -> int:
    """The width of each attention head.

    Raises:
        ValueError: if d_model is not a multiple of num_heads.
    """
    if d_model % num_heads != 0:
        raise ValueError(f"d_model must be a multiple of num_heads, but is {d_model} with num_heads {num_heads}")
    return d_model // num_heads
