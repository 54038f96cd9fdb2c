"""The engines that run trials. To add one: a file beside this one and a line in the registry."""

from depthbench.errors import unknown
from depthbench.study.engine import Engine, Setup
from depthbench.study.engine_local import Pool
from depthbench.study.engine_ray import RayEngine

ENGINES: dict[str, type[Engine]] = {"local": Pool, "ray": RayEngine}


def engine_class(name: str) -> type[Engine]:
    """The registered engine; an error with the nearest name otherwise."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return ENGINES[name]


def open_engine(setup: Setup) -> Engine:
    """The engine that ``setup`` names, ready to start trials."""
    return engine_class(setup.place.engine)(setup)
