"""Published sets of questions with their answers, and how each becomes prompts and answers.

Names, columns and splits are those of the data sets on the Hugging Face Hub.
"""

from typing import Literal

from pydantic import Field

from depthbench.config import Frozen

QUESTION = "Question: {{ question }}\nAnswer:"
SOLVED = "Problem:\n{{ problem }}\n\nSolution:"
STEM = (
    "abstract_algebra",
    "anatomy",
    "astronomy",
    "college_biology",
    "college_chemistry",
    "college_computer_science",
    "college_mathematics",
    "college_physics",
    "computer_security",
    "conceptual_physics",
    "electrical_engineering",
    "elementary_mathematics",
    "high_school_biology",
    "high_school_chemistry",
    "high_school_computer_science",
    "high_school_mathematics",
    "high_school_physics",
    "high_school_statistics",
    "machine_learning",
)
"""Subjects of MMLU that its authors count as STEM."""


class PublishedSet(Frozen):
    """Where a set lies, and how a record becomes a prompt and an answer."""

    about: Literal["code", "STEM", "mathematics"]
    hub: str
    """Its name on the Hub."""
    subsets: tuple[str, ...] = ()
    """All are read; empty = its only one."""
    split: str = "test"
    only: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By column: the values of records that count; empty = all."""
    columns: tuple[str, ...]
    """That are read."""
    prompt: str
    """Jinja template over the columns."""
    answer: str
    licence: str
    source: str
    """Paper."""


PUBLISHED: dict[str, PublishedSet] = {
    "humaneval": PublishedSet(
        about="code",
        hub="openai/openai_humaneval",
        columns=("prompt", "canonical_solution"),
        prompt="{{ prompt }}",
        answer="{{ canonical_solution }}",
        licence="MIT",
        source="arXiv 2107.03374",
    ),
    "mbpp": PublishedSet(
        about="code",
        hub="google-research-datasets/mbpp",
        subsets=("full",),
        columns=("text", "test_list", "code"),
        prompt='"""\n{{ text }}\n{{ test_list | join("\n") }}\n"""\n',
        answer="{{ code }}",
        licence="CC BY 4.0",
        source="arXiv 2108.07732",
    ),
    "gsm8k": PublishedSet(
        about="mathematics",
        hub="openai/gsm8k",
        subsets=("main",),
        columns=("question", "answer"),
        prompt=QUESTION,
        answer=" {{ answer }}",
        licence="MIT",
        source="arXiv 2110.14168",
    ),
    "math": PublishedSet(
        about="mathematics",
        hub="EleutherAI/hendrycks_math",
        subsets=(
            "algebra",
            "counting_and_probability",
            "geometry",
            "intermediate_algebra",
            "number_theory",
            "prealgebra",
            "precalculus",
        ),
        columns=("problem", "solution"),
        prompt=SOLVED,
        answer=" {{ solution }}",
        licence="MIT",
        source="arXiv 2103.03874",
    ),
    "math500": PublishedSet(
        about="mathematics",
        hub="HuggingFaceH4/MATH-500",
        columns=("problem", "solution"),
        prompt=SOLVED,
        answer=" {{ solution }}",
        licence="none stated; MATH, of which it is a part, is MIT",
        source="arXiv 2305.20050",
    ),
    "arc_challenge": PublishedSet(
        about="STEM",
        hub="allenai/ai2_arc",
        subsets=("ARC-Challenge",),
        columns=("question", "choices", "answerKey"),
        prompt=QUESTION,
        answer=" {{ choices.text[choices.label.index(answerKey)] }}",
        licence="CC BY-SA 4.0",
        source="arXiv 1803.05457",
    ),
    "sciq": PublishedSet(
        about="STEM",
        hub="allenai/sciq",
        columns=("support", "question", "correct_answer"),
        prompt="{{ support.lstrip() }}\n" + QUESTION,
        answer=" {{ correct_answer }}",
        licence="CC BY-NC 3.0",
        source="arXiv 1707.06209",
    ),
    "mmlu_stem": PublishedSet(
        about="STEM",
        hub="cais/mmlu",
        subsets=STEM,
        only={"subject": STEM},
        columns=("question", "choices", "answer", "subject"),
        prompt="Question: {{ question.strip() }}\nAnswer:",
        answer=" {{ choices[answer] }}",
        licence="MIT",
        source="arXiv 2009.03300",
    ),
}
