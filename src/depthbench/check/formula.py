"""The formula for own parameters on a design's card, as a number."""

import re
from tokenize import TokenError

import sympy
from sympy.parsing.sympy_parser import (
    factorial_notation,
    implicit_multiplication,
    parse_expr,
    standard_transformations,
)

from depthbench.designs.base import DesignConfig
from depthbench.shapes import Shape

ALLOWED = re.compile(r"[\w\s+*/()·²!.,-]*")
RULES = (*standard_transformations, factorial_notation, implicit_multiplication)


def evaluated(formula: str, design: DesignConfig, shape: Shape) -> int | None:
    """``formula`` in ``L``, ``d``, ``kv_heads``, ``head_dim``, the design's whole numbers by name
    (true is 1) and ``m`` for its streams or fractions; None if it cannot be read or is no whole
    number.
    """
    sizes = {"L": shape.layers, "d": shape.width, "kv_heads": shape.kv_heads}
    options = {key: int(v) for key, v in vars(design).items() if isinstance(v, int)}
    m = options.get("streams", options.get("fractions", 1))
    known = options | sizes | {"head_dim": shape.head_dim, "m": m}
    names = {name: sympy.Symbol(name) for name in known}
    if not ALLOWED.fullmatch(formula):
        return None
    text = formula.replace("²", "**2").replace("·", "*")
    try:
        number = parse_expr(text, local_dict=names, transformations=RULES).subs(known)
        return int(number) if number.is_integer else None
    except (SyntaxError, TokenError, TypeError, ValueError, AttributeError):
        return None
