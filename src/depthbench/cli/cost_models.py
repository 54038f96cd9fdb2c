"""Models that `cost` and `bench` are asked about: of runs, of a family, or of one budget."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from depthbench.cli.numbers import numbers
from depthbench.cost.devices import BUILT_IN, THIS, DeviceSpec
from depthbench.designs import REGISTRY, label_of, parse_design
from depthbench.errors import DepthbenchError
from depthbench.families import FAMILIES, family
from depthbench.nn.backbones import parse_backbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from depthbench.solve import DEFAULT_VOCAB, solve_shapes
from depthbench.train.load import config_of

Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN]...", help="Folders of runs, trials or converted models."),
]
Family = Annotated[
    str | None, typer.Option("--family", help=f"A published family: {', '.join(FAMILIES)}.")
]
Params = Annotated[str | None, typer.Option("--params", help="Budget: 400M, 1.5B, 500k.")]
Depths = Annotated[str | None, typer.Option("--depths", help="Numbers of blocks: 4,32.")]
Heads = Annotated[int | None, typer.Option("--heads", min=1, help="Attention heads.")]
KVHeads = Annotated[
    int | None, typer.Option("--kv-heads", min=1, help="Key/value heads; default: as many.")
]
Vocab = Annotated[
    int | None,
    typer.Option("--vocab", min=2, help="Size of the vocabulary.", show_default="257 bytes"),
]
Designs = Annotated[str, typer.Option("--designs", help="Names with commas, or all.")]
BackboneName = Annotated[str, typer.Option("--backbone", help="dense, moe or hybrid.")]
Tied = Annotated[bool, typer.Option("--tied-head", help="The embedding's matrix is the head too.")]
Context = Annotated[str, typer.Option("--context", help="Tokens of the prompt: 4096, 32k.")]
ServingDtype = Annotated[
    str | None,
    typer.Option(
        "--dtype", help="float32, bfloat16 or float16; default: bfloat16 on a GPU, else float32."
    ),
]
DeviceName = Annotated[
    str,
    typer.Option("--device", help=f"{', '.join(BUILT_IN)}, {THIS} (see bench device), or a file."),
]


@dataclass(frozen=True)
class Asked:
    """One model."""

    label: str
    config: ModelConfig


def models_of(
    runs: list[str] | None,
    designs: str,
    family_name: str | None,
    backbone: str,
    tied: bool,
    **given: Any,
) -> list[Asked]:
    """The models in folders, or every design at every shape.

    Raises `DepthbenchError` for options that say nothing or fight each other.
    """
    options = {key: value for key, value in given.items() if value is not None}
    if runs:
        if options or family_name is not None:
            first = "family" if family_name is not None else next(iter(options))
            raise DepthbenchError(
                f"{runs[0]} and --{first.replace('_', '-')} are both given: a run has its shape. "
                "Leave one of the two out"
            )
        configs = [_model_in(Path(one)) for one in runs]
        return [Asked(label_of(one.design), one) for one in configs]
    chosen = list(REGISTRY) if designs == "all" else [one.strip() for one in designs.split(",")]
    if len(set(chosen)) < len(chosen):
        raise DepthbenchError(f"--designs {designs}: a design is named twice. Name each once")
    made = parse_backbone({"name": backbone, "tied_head": True} if tied else {"name": backbone})
    found: list[Asked] = []
    for spec in chosen:
        design = parse_design(spec)
        try:
            shapes = _shapes(family_name, options, spec, made)
            configs = [ModelConfig(shape=one, design=design, backbone=made) for one in shapes]
            for config in configs:
                Model.on_meta(config)
        except DepthbenchError as error:
            # some designs fit one kind of backbone alone: all means all that do
            if designs != "all" or spec == "prenorm":
                raise
            typer.echo(f"Left out: {error}", err=True)
            continue
        found += [Asked(label_of(design), one) for one in configs]
    return found


def _model_in(folder: Path) -> ModelConfig:
    """Of a run, or of a folder that ``depthbench convert`` wrote."""
    if not (folder / "checkpoints").is_dir() and (folder / "config.json").is_file():
        from depthbench.hub.own_folder import architecture_in

        own = architecture_in(folder)
        if own is not None:
            return own
    return config_of(folder).model


def _shapes(
    family_name: str | None, options: dict[str, Any], design: str, backbone: Any
) -> tuple[Shape, ...]:
    if family_name is not None:
        if options:
            flag = next(iter(options)).replace("_", "-")
            raise DepthbenchError(
                f"--family {family_name} and --{flag} are both given: a published family has its "
                "sizes. Leave one of the two out"
            )
        return family(family_name)
    if "params" not in options or "depths" not in options:
        raise DepthbenchError(
            "no model is named. Give folders of runs, --family 400m, or --params 25M --depths 4,32"
        )
    solved = solve_shapes(
        options["params"],
        depths=[int(one) for one in numbers("depths", options["depths"], int)],
        heads=options.get("heads"),
        kv_heads=options.get("kv_heads"),
        vocab=options.get("vocab", DEFAULT_VOCAB),
        design=design,
        backbone=backbone,
    )
    return tuple(one.shape for one in solved)


def dtype_on(device: DeviceSpec, dtype: str | None) -> str:
    """The dtype that was asked for, or what is usual on ``device``."""
    found = dtype or ("bfloat16" if device.kind == "gpu" else "float32")
    device.check_dtype(found)
    return found
