"""Alterations of the designs with one state and no sources but it."""

from tests.contract.mutant import Mutant

CLASSIC: list[Mutant] = []
