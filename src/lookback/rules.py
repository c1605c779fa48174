"""Ranges of settings, written as types, so that a signature says what it accepts and `config.py` can check it."""

from typing import Annotated

from annotated_types import Ge, Gt, Lt, MinLen

PositiveInt = Annotated[int, Gt(0)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0.0)]
NonNegativeFloat = Annotated[float, Ge(0.0)]
Fraction = Annotated[float, Ge(0.0), Lt(1.0)]
Lengths = Annotated[list[PositiveInt], MinLen(1)]
