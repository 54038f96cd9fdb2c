"""``depthbench doctor``: what is installed, what the machine can do, what is missing."""

from typing import TYPE_CHECKING

import typer

from depthbench.cli.options import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from depthbench.doctor import Health

EXAMPLE = """Examples:

depthbench doctor

depthbench doctor --json
"""


def register(app: typer.Typer) -> None:
    """Add the command ``doctor`` to ``app``."""
    app.command("doctor", epilog=EXAMPLE)(doctor)


def doctor(as_json: AsJson = False) -> int:
    """Say what is installed, how fast this machine is, and what is missing for which feature."""
    from depthbench.cli.console import wide_console
    from depthbench.doctor import examine

    found = examine()
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return 0
    tell(found, wide_console(100))
    return 0


def tell(found: "Health", console: "Console") -> None:
    """In words."""
    from depthbench.quantities import bytes_text

    memory = "unknown" if found.memory_bytes is None else bytes_text(found.memory_bytes)
    speed = found.speed
    lines = [
        f"depthbench {found.depthbench}, Python {found.python}, torch {found.torch}",
        f"machine: {found.platform}, {found.cores} cores, memory {memory}",
        f"device: {found.device}" + (f" ({', '.join(found.gpus)})" if found.gpus else ""),
        f"threads: {found.threads} a process; models run side by side in processes",
        "allocator: " + ("keeps freed memory" if found.keeps_freed_memory else "left as it is"),
        f"speed: {speed.flops_per_second / 1e9:.0f} GFLOP/s in {speed.dtype}, "
        f"{speed.bytes_per_second / 1e9:.1f} GB/s copied, one thread, measured now",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False)
    console.print("extras:", markup=False, highlight=False)
    for one in found.extras:
        state = f"lacks {', '.join(one.missing)}: {one.install}" if one.missing else "installed"
        console.print(f"  {one.name:<12} {one.brings}", markup=False, highlight=False)
        console.print(f"  {'':<12} {state}", markup=False, highlight=False)
    for line in found.advice:
        console.print(f"- {line}", markup=False, highlight=False)
