"""The one interface of every residual design: what happens between branches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from jaxtyping import Float
from pydantic import ConfigDict
from torch import Tensor

from depthbench.config import Named
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone, Context, Depth, Entry, Role, projections_of
from depthbench.nn.cache import Memory, Room
from depthbench.nn.fused import PLAIN, Kernels
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Parametrised, Start
from depthbench.nn.work import Work
from depthbench.shapes import Shape

S = TypeVar("S")
"""The state that travels between sites."""


class DesignConfig(Named):
    """Options of a design; every concrete config names its design by the default of ``name``."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    holds: ClassVar[str] = "options"

    @classmethod
    def notable(cls) -> tuple[dict[str, Any], ...]:
        """Options that only matter together, to be checked and shown beside one at a time."""
        return ()

    @classmethod
    def drawn(cls) -> dict[str, Any]:
        """Options at which a figure of four blocks shows the wiring; the defaults unless given."""
        return {}


@dataclass(frozen=True)
class Card:
    """Facts about a design for tables and documentation."""

    family: Literal[
        "baseline",
        "norm placement",
        "residual scale",
        "gate",
        "streams",
        "depth attention",
        "depth average",
        "negative control",
    ]
    sources: str
    """What a site reads."""
    weights: Literal["fixed", "learned", "dynamic"]
    """Fixed numbers, learned constants, or functions of the input."""
    own: str
    """Own parameters, as a formula."""
    equation: str
    paper: str
    peak_lr: float = 2e-3
    """Published or recommended peak learning rate at 400M parameters."""


@dataclass(frozen=True)
class Fact:
    """A number that an equation fixes, as measured on a design and as the equation says."""

    name: str
    measured: float
    expected: float
    tolerance: float = 1e-9
    """Largest difference, in float64."""


@dataclass(frozen=True)
class Fewer:
    """The streams of a model in terms of fewer ones."""

    kept: tuple[int, ...]
    """Number of the old stream that each new one goes on from, rising."""
    sites: Sequence[Float[Tensor, "m s"]]
    """``E`` of every site, in order: ``H ≈ E H'``, old streams from new ones."""
    readout: Float[Tensor, "m s"]
    """``E`` of the last state."""
    collect: Float[Tensor, "m s"]
    """``C``: ``H' = Cᵀ H``, new streams from old ones, at every depth."""
    exact: bool = True
    """Whether the new model must be able to do the same; see `Design.fewer`."""


@dataclass(frozen=True)
class Site:
    """One place where a branch is called."""

    number: int
    layers: int

    @property
    def block(self) -> int:
        """Block that the site belongs to, from 0."""
        return self.number // 2

    @property
    def attention(self) -> bool:
        """Whether the branch is attention; otherwise it is the feed-forward."""
        return self.number % 2 == 0


@dataclass(frozen=True)
class Route:
    """What a connection used for this input; designs with coefficients extend it."""

    depth: Depth | None = None

    def mixes(self) -> tuple[Float[Tensor, "*bt s s"], ...]:
        """The matrices that mixed streams, if there are any."""
        return ()

    def on_running_sum(self) -> Float[Tensor, "b t"] | None:
        """Weight on a running sum of neighbouring sites, beside weights on earlier sums."""
        return None


class Connection(Parametrised, ABC, Generic[S]):
    """Parameters and read/write rule of one site."""

    kernels: Kernels = PLAIN
    """What may stand in for torch's own operations; see `Model.use_kernels`."""

    def starts(self) -> dict[str, Start]:
        """No parameters of its own, unless a design says otherwise."""
        return {}

    @abstractmethod
    def read(self, state: S) -> tuple[Float[Tensor, "b t d"], Route]:
        """The branch's input, and the coefficients that were used."""

    @abstractmethod
    def write(self, state: S, y: Float[Tensor, "b t d"], route: Any, entry: Entry | None) -> S:
        """The state after the branch's output ``y``; ``route`` is what `read` returned."""

    @abstractmethod
    def mixed(self, state: S, route: Any) -> Float[Tensor, "b t d"]:
        """The sum of earlier outputs that the branch's norm reads, or the branch where none is.

        ``route`` is what `read` returned; once it is fixed this is linear in the state.
        """

    def input_norm(self) -> RMSNorm | None:
        """The norm that the branch's input comes out of; None where there is none of its own."""
        return None

    def fewer_into(self, new: Any, expand: Any, collect: Any) -> None:
        """Give ``new``, which carries fewer streams, what makes it do as this one does.

        ``expand`` and ``collect`` are ``E`` of this site and ``C`` of a `Fewer`. Called only where
        `Design.fewer` gives a config.
        """
        raise NotImplementedError

    def new_memory(self, room: Room) -> Memory | None:
        """Room for what the connection keeps of earlier tokens; None where tokens are apart."""
        return None

    def work(self, length: int) -> Work:
        """Operations of the site's read and write on ``length`` tokens."""
        return projections_of(self, length)


class TensorConnection(Connection[Tensor], ABC):
    """A connection whose branch reads the state itself, or its norm."""

    def mixed(self, state: Float[Tensor, "b t d"], route: Any) -> Float[Tensor, "b t d"]:
        return state


class Design(Parametrised, ABC, Generic[S]):
    """How branch outputs travel through depth; it builds the connection of every site."""

    Config: ClassVar[type[DesignConfig]]
    card: ClassVar[Card]
    start_distance: ClassVar[float | None] = None
    """Largest difference of the start's logits to `prenorm`'s at the same backbone weights, over
    the largest logit, in float64 at ``norm_eps = 1e-12``; None where the design does not start as
    `prenorm`. What is left comes from eps alone, so it grows with it."""
    checkpoint_unit: ClassVar[Literal["block", "branch"]] = "block"
    """What activation checkpointing recomputes. ``branch`` where the state grows with depth:
    its sources are kept anyway, so recomputing their mixes would save nothing."""
    autocast_distance: ClassVar[float] = 0.02
    """Largest distance of the logits under bfloat16 autocast to float32's, over their size: a few
    units of 2^-8. More where nothing carries the state past the branches, which are rounded."""
    in_attention: ClassVar[bool] = False
    """Whether it changes what happens inside attention, so that it needs this package's own."""
    sums_branches: ClassVar[bool] = False
    """Whether the state is the embedding plus all branch outputs, each with a weight of order 1, so
    that a factor on them does what depth-µP and CompleteP assume. Not where a norm, a softmax or a
    factor of its own sets their size."""
    averages_streams: ClassVar[bool] = False
    """Whether a stream can go on as a mean of several; see `fewer`."""
    reads_marks: ClassVar[bool] = False
    """Whether it must be told which tokens start documents and end sentences."""

    kernels: Kernels = PLAIN
    """As those of its connections."""

    def __init__(self, config: Any, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.shape = shape
        self.backbone = backbone
        self.check()

    def check(self) -> None:
        """Raise `DepthbenchError` for options that fight each other."""

    def check_documents_apart(self) -> None:
        """Raise `DepthbenchError` if it mixes tokens and cannot restart with a document."""

    def starts(self) -> dict[str, Start]:
        """No parameters at the root, unless a design says otherwise."""
        return {}

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Of its streams, where they have names of their own; otherwise they go by number."""
        return ()

    def distance_at_start(self) -> float | None:
        """`start_distance`, unless options change it."""
        return self.start_distance

    def reads_out_mean(self) -> bool:
        """Whether it opens with equal streams and reads out their mean."""
        return False

    def takes_branch_factor(self) -> bool:
        """`sums_branches`, unless options change it."""
        return self.sums_branches

    def mixing_error(self) -> float | None:
        """Largest error of a row's or column's sum of mixing matrices, at random parameters.

        None where they need not be doubly stochastic, or there are none.
        """
        return None

    def branch_scale(self, role: Role) -> float:
        """Factor on the start's standard deviation of a branch matrix."""
        return 1.0

    @abstractmethod
    def connection(self, site: Site) -> Connection[S]:
        """A new connection for ``site``."""

    @abstractmethod
    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> S:
        """The state before the first site."""

    def new_memory(self, room: Room) -> Memory | None:
        """Room for what `open` keeps of earlier tokens."""
        return None

    def work(self, length: int) -> Work:
        """Operations outside the sites: `open`, `readout`, and what is done for all sites."""
        return Work()

    def facts(self) -> list[Fact]:
        """Numbers that the design's equation fixes, measured on connections of its own.

        They are what ``depthbench check`` holds against the paper, so measure behaviour (what
        `read` and `write` do to tensors), not the constants that the code wrote down.
        """
        return []

    def enter(self, state: S, place: int) -> S:
        """The state as a block finds it that runs at ``place`` (see `Program.places`)."""
        return state

    @abstractmethod
    def readout(self, state: S) -> Float[Tensor, "b t d"]:
        """The state as one tensor, for the final norm and head."""

    @abstractmethod
    def depth_state(self, state: S) -> Float[Tensor, "b t width"]:
        """``z_i``: the state between two blocks as probes see it."""

    def tables_without(self, tables: dict[str, Tensor], kept: Sequence[int]) -> dict[str, Tensor]:
        """The parameters at the root, by name, of a model with the blocks ``kept`` alone."""
        return tables

    def fewer(self, kept: Sequence[int], exact: bool) -> DesignConfig:
        """The design of a model whose streams are merged into the ``kept`` ones.

        With ``exact`` it can do just what this one does where streams are multiples of each other;
        without, it may be simpler. Raises `DepthbenchError` where streams cannot be merged.
        """
        raise DepthbenchError(
            f"design '{self.config.name}' has no streams that can be merged into {list(kept)}. "
            "Name a model whose streams are mixed or pooled: depthbench designs lists them"
        )

    def fewer_into(self, new: Any, fewer: Fewer) -> None:
        """Give ``new``, of the config that `fewer` returned, the parameters at the root.

        Called only where `fewer` gives one.
        """
        raise NotImplementedError

    def with_depth_state(self, state: S, z: Float[Tensor, "b t width"]) -> S:
        """``state`` with ``z`` in place of its depth state, and all else as it is.

        Raises `DepthbenchError` where the depth state is a mix of many tensors.
        """
        raise DepthbenchError(
            f"the depth state of design '{self.config.name}' is a mix of many sources, so none "
            "can take its place"
        )


class TensorDesign(Design[Tensor], ABC):
    """A design whose state is one tensor."""

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Float[Tensor, "b t d"]:
        return embedding

    def readout(self, state: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return state

    def depth_state(self, state: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return state

    def with_depth_state(
        self, state: Float[Tensor, "b t d"], z: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        return z
