"""Reports of a study: one self-contained HTML file, figures and the verdict as JSON."""

from depthbench.report.html import ReportFiles, write_report

__all__ = ["ReportFiles", "write_report"]
