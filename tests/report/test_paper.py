"""The publication set: numbers of the tables, LaTeX that is safe, figures as vectors."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from depthbench.probes import PROBES
from depthbench.report.latex import latex
from depthbench.report.paper import (
    captions,
    interval_table,
    loss_table,
    search_table,
    write_paper,
)
from depthbench.report.study import StudyData, load

T_OF_TWO = 4.302652729911275
"""Student's quantile for 95 % and two degrees of freedom."""


@pytest.fixture(scope="module")
def study(rich_folder: Path) -> StudyData:
    return load(rich_folder)


def test_the_table_of_losses_has_every_number(study: StudyData) -> None:
    lines = loss_table(study).splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrr}"
    assert lines[2] == r"design & L2 & L4 & L8 & L16 \\"
    assert lines[5] == (
        r"hc & 2.250 $\pm$ 0.008 & 2.140 $\pm$ 0.008 & 2.130 $\pm$ 0.008 & "
        r"\textbf{2.120} $\pm$ 0.008 \\"
    )
    assert r"2.420 $\pm$ 0.011 (2 of 3) \\" in lines[7]
    assert lines[-1] == r"\end{tabular}"


def test_the_table_of_rates_marks_the_chosen_one(study: StudyData) -> None:
    lines = search_table(study).splitlines()
    assert r"hc & \textbf{0.004} & 2.122 & 1 & 0 & 0 \\" in lines
    assert r"prenorm & 0.008 & -- & 0 & 1 & 0 \\" in lines
    assert sum("textbf" in line for line in lines) == 4


def test_intervals_are_student_s_over_the_seeds(study: StudyData) -> None:
    lines = interval_table(study).splitlines()
    # 0.008 · 4.303 / √3 = 0.0199 around the mean of three seeds
    losses = (2.112, 2.12, 2.128)
    reach = T_OF_TWO * statistics.stdev(losses) / math.sqrt(3)
    span = f"2.120 [{2.12 - reach:.3f}, {2.12 + reach:.3f}]"
    assert rf"hc & 16 & {span} & 16 & {span} \\" in lines


def test_one_seed_has_no_interval(study: StudyData) -> None:
    verdict = study.verdict
    alone = [
        design.model_copy(
            update={
                "curve": tuple(
                    point.model_copy(update={"by_seed": {0: 2.5}, "bits_per_byte": 2.5})
                    for point in design.curve
                )
            }
        )
        for design in verdict.designs
    ]
    one = replace(study, verdict=verdict.model_copy(update={"designs": tuple(alone)}))
    assert r"hc & 2 & 2.500 & 16 & 2.500 \\" in interval_table(one).splitlines()


def test_captions_count_trials_and_define_the_loss(study: StudyData) -> None:
    curve, table, intervals, search, training = captions(study)
    assert "3 seeds; 56 of 60 trials finished, 3 diverged and 1 failed." in curve
    assert "mean and sample standard deviation over seeds" in table
    assert "Student's 95 \\% interval of that mean" in intervals
    assert "middle shape of each design (8 layers, width 68)" in search
    assert "a line is a seed" in training


def test_definitions_of_all_probes_can_be_set() -> None:
    """pdfTeX knows no ``‖`` in text."""
    for probe in PROBES:
        assert latex(f"{probe.title} {probe.definition} {probe.blind}").isascii(), probe.name
    assert latex("Σ ‖z̄‖² ≤ 3") == (
        r"\ensuremath{\Sigma} \ensuremath{\Vert}\ensuremath{\bar{z}}\ensuremath{\Vert}"
        r"\ensuremath{^2} \ensuremath{\le} 3"
    )


def test_nothing_from_the_user_is_run_by_latex() -> None:
    attack = "\\input{/etc/passwd} $x_1^2$ 50% #1 ~ & {a}\n"
    assert latex(attack) == (
        r"\textbackslash{}input\{/etc/passwd\} \$x\_1\textasciicircum{}2\$ 50\% \#1 "
        r"\textasciitilde{} \& \{a\} "
    )


def test_files_are_written(rich_folder: Path, tmp_path: Path) -> None:
    paths = write_paper(rich_folder, tmp_path / "paper")
    assert sorted(path.name for path in paths) == sorted(
        p.name for p in (tmp_path / "paper").iterdir()
    )
    assert len(paths) == 10
    pdf = (tmp_path / "paper" / "loss_by_aspect_ratio.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" not in pdf
    svg = (tmp_path / "paper" / "loss_by_aspect_ratio.svg").read_text()
    assert ">hc</text>" in svg
