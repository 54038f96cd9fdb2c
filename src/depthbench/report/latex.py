"""Tables and text as LaTeX, and nothing in them that LaTeX would run."""

import re
from collections.abc import Iterator, Sequence

GREEK = {
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "δ": "delta",
    "ε": "epsilon",
    "η": "eta",
    "θ": "theta",
    "λ": "lambda",
    "\u00b5": "mu",
    "\u03bc": "mu",
    "π": "pi",
    "ρ": "rho",
    "σ": "sigma",
    "τ": "tau",
    "φ": "phi",
    "ω": "omega",
    "Δ": "Delta",
    "Σ": "Sigma",
    "Φ": "Phi",
    "Ω": "Omega",
}
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
}
MATHS = {
    "‖": r"\Vert",
    "²": "^2",
    "ᵀ": r"^\top",
    "×": r"\times",
    "±": r"\pm",
    "·": r"\cdot",
    "−": "-",
    "→": r"\to",
    "←": r"\leftarrow",
    "↦": r"\mapsto",
    "≤": r"\le",
    "≥": r"\ge",
    "∂": r"\partial",
    "○": r"\circ",
    "ȳ": r"\bar{y}",
    "Ỹ": r"\tilde{Y}",
    **{sign: rf"\{name}" for sign, name in GREEK.items()},
}
"""What only a formula can have; definitions are full of it."""
TYPES = {"…": r"\dots{}", "–": "--", "—": "---"}
SIGNS = SPECIAL | TYPES | {sign: rf"\ensuremath{{{code}}}" for sign, code in MATHS.items()}
ACCENTS = {"\u0304": "bar", "\u0303": "tilde"}
"""Combining signs behind a letter."""


def latex(text: str) -> str:
    """``text`` as LaTeX prints it, and nothing that LaTeX would run."""
    printable = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    escaped = "".join(SIGNS.get(sign, sign) for sign in printable)
    accents = "".join(ACCENTS)
    return re.sub(
        f"([A-Za-z])([{accents}])",
        lambda found: rf"\ensuremath{{\{ACCENTS[found[2]]}{{{found[1]}}}}}",
        escaped,
    )


def caption(text: str) -> str:
    """A caption that says ``text``."""
    return f"\\caption{{{latex(text)}}}"


def bold(text: str, it_is: bool = True) -> str:
    """``text``, which is LaTeX already, in bold where ``it_is``."""
    return f"\\textbf{{{text}}}" if it_is else text


def bounds(low: float, high: float) -> str:
    """An interval."""
    return f"[{low:.3f}, {high:.3f}]"


def tabular(columns: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table with the rules of booktabs; its cells are LaTeX already."""

    def rows() -> Iterator[str]:
        yield f"\\begin{{tabular}}{{{columns}}}"
        yield "\\toprule"
        yield f"{' & '.join(head)} \\\\"
        yield "\\midrule"
        yield from (f"{' & '.join(line)} \\\\" for line in lines)
        yield "\\bottomrule"
        yield "\\end{tabular}"

    return "\n".join(rows()) + "\n"
