"""Alterations of what is watched while a model trains, and of what is made of it."""

from tests.contract.mutant import Mutant

_MEASURE = "train/test_health.py"
_SPIKES = "train/test_spikes.py"
_FINDINGS = "train/test_findings.py"
_MONITOR = "train/test_monitor.py"

HEALTH = [
    Mutant(
        "deviation is not that of a normal distribution",
        "train/health/spikes.py",
        "NORMAL * deviation",
        "deviation",
        _SPIKES,
    ),
    Mutant(
        "falls are spikes",
        "train/health/spikes.py",
        "if score < self.config.spike_z or",
        "if abs(score) < self.config.spike_z or",
        _SPIKES,
    ),
    Mutant(
        "what never moved jumps",
        "train/health/spikes.py",
        " or median[place] <= NOTHING",
        "",
        _SPIKES,
    ),
    Mutant(
        "the window never forgets",
        "train/health/spikes.py",
        "[-self.config.window :]",
        "",
        _SPIKES,
    ),
    Mutant(
        "windows are lost on the way",
        "train/health/monitor.py",
        "self.spikes.restore(state)",
        "pass",
        "train/test_resume.py",
    ),
    Mutant(
        "update sizes with their learning rate",
        "train/health/monitor.py",
        "[size / made.rate for size in updates]",
        "updates",
        _MONITOR,
    ),
    Mutant(
        "measured at validations alone",
        "train/loop.py",
        "self.done in evaluations or self.monitor.measures(self.done)",
        "self.done in evaluations",
        _MONITOR,
    ),
    Mutant(
        "updates of all groups at one rate",
        "train/health/sums.py",
        'group["lr"] * root',
        "0.1 * root",
        _MEASURE,
    ),
    Mutant(
        "eps beside the uncorrected moment",
        "train/health/sums.py",
        'eps.append(group["eps"] * root)',
        'eps.append(group["eps"])',
        _MEASURE,
    ),
    Mutant(
        "sums of the first shard",
        "train/health/sums.py",
        "Partial() if one.is_shard() else Replicate()",
        "Replicate()",
        "train/test_teams.py",
    ),
    Mutant(
        "rows taken for columns",
        "train/health/measure.py",
        "for axis in (-1, -2)",
        "for axis in (-2, -1)",
        _MEASURE,
    ),
    Mutant(
        "shallow states against themselves",
        "train/health/measure.py",
        "states[:quarter] + states[-quarter:]",
        "states[:quarter] + states[:quarter]",
        _MEASURE,
    ),
    Mutant(
        "one measurement is enough",
        "train/health/depth_rules.py",
        "if len(run) < least or not places:",
        "if not run:",
        _FINDINGS,
    ),
    Mutant(
        "stable however far it rises",
        "train/health/loss_rules.py",
        "if loss <= least * (1 + config.stable_rise):",
        "if loss:",
        _FINDINGS,
    ),
    Mutant(
        "slope over the whole run",
        "train/health/loss_rules.py",
        "if loss is not None and step <= limit",
        "if loss is not None",
        _FINDINGS,
    ),
]
