"""A trained model from the folder of its trial."""

import json
from pathlib import Path

from safetensors import SafetensorError

from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model
from depthbench.train.checkpoint import Checkpoint, last
from depthbench.train.config import TrialConfig


def load_trial(folder: Path) -> tuple[Model, TrialConfig]:
    """The model with the weights of the trial's last checkpoint, and the trial's config.

    Raises `DepthbenchError` if the folder is no trial, has no weights, or they do not fit.
    """
    config, found = config_of(folder), weights_of(folder)
    model = Model.on_meta(config.model)
    try:
        model.load_state_dict(found.tensors("model"), assign=True)
    except (RuntimeError, SafetensorError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DepthbenchError(
            f"{found.path} does not hold this model ({reason}). Train the trial again"
        ) from None
    if config.train.document_mask:
        model.keep_documents_apart()
    return model.eval(), config


def weights_of(folder: Path) -> Checkpoint:
    """The last checkpoint of the trial in ``folder``. Raises `DepthbenchError` without one."""
    try:
        found = last(folder / "checkpoints")
    except DepthbenchError as error:
        raise DepthbenchError(f"{error}. Train the trial again") from None
    if found is None:
        raise DepthbenchError(
            f"{folder} holds no weights: the trial is not finished, has diverged, or ran with "
            "train.save_model = false. Train it again with save_model = true"
        )
    return found


def config_of(folder: Path) -> TrialConfig:
    """The config of the trial in ``folder``. Raises `DepthbenchError` if it is none."""
    path = folder / "config.json"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DepthbenchError(
            f"{path} cannot be read: {error.strerror or error}. {_hint(folder)}"
        ) from None
    try:
        found = json.loads(text)
        if isinstance(found, dict) and "model_type" in found:
            raise DepthbenchError(
                f"{folder} is a Hugging Face model ({found['model_type']}), no run of ours. Write "
                f"one of it: depthbench convert {folder} NEW --to depthbench"
            )
        return TrialConfig.parse(found, str(path))
    except ValueError as error:
        raise DepthbenchError(f"{path} is no valid JSON: {error}. Train the trial again") from None


def _hint(folder: Path) -> str:
    trials = folder / "trials"
    found = sorted(path.name for path in trials.iterdir()) if trials.is_dir() else []
    if not found:
        return "Name the folder of a trial, such as runs/demo/trials/0123456789ab"
    return f"Name one of its trials, such as {trials / found[0]}"
