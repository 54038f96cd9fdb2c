"""What the tests of several processes run in each of them: trials one after another.

python -m tests.train.team_run FOLDER, with FOLDER/jobs.json; results go to FOLDER/results.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

from depthbench.data.dataset import Dataset
from depthbench.machine import prepare_process
from depthbench.train.group import joined
from depthbench.train.loop import Trial
from depthbench.train.team import Team
from tests.small import trial_config


def run(folder: Path, job: dict[str, Any], team: Team) -> dict[str, Any]:
    dataset = Dataset.open(Path(job["data"]))
    config = trial_config(dataset, **job["changes"])
    trial = Trial(config, dataset, folder / job["name"], team=team)
    if "again" in job:
        trial._begin(resume=True)
        trial.folder = folder / job["again"]
        trial.save()
        return {}
    until = job.get("stop")
    outcome = trial.run(
        lambda *_: None, resume=True, stop=lambda: until is not None and trial.done >= until
    )
    return {"status": outcome.status, "loss": outcome.final_train_loss, "notes": outcome.notes}


def main() -> None:
    folder = Path(sys.argv[1])
    prepare_process()
    plan = json.loads((folder / "jobs.json").read_text())
    with joined(plan["strategy"], "cpu") as team:
        results = {job["name"]: run(folder, job, team) for job in plan["jobs"]}
        if team.main:
            (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
