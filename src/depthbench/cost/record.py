"""Every kernel of a run, from the run itself: shapes alone, no numbers and no memory.

A model of this package is run as it is on tensors that have a shape and a storage but no values
(torch's fake tensors). What is called, in what order, on what sizes, and what is alive at each
moment is therefore that of the real run; only its time is not known.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
LOOK_UPS = {aten.embedding, aten.index_select, aten.index, aten.gather}
"""Read as much of their first input as they write, not all of it."""
ALLOCATIONS = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided}
OVERWRITES = {aten.copy_, aten.fill_, aten.zero_}
"""Do not read what they write to."""
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward,
}

Kind = Literal["product", "attention", "sum", "other"]


@dataclass(frozen=True)
class Size:
    """Of a product: ``count`` times ``(rows, inner) · (inner, columns)``."""

    count: int
    rows: int
    inner: int
    columns: int


@dataclass(frozen=True)
class Kernel:
    """One call that a device carries out before the next."""

    name: str
    kind: Kind
    part: str
    """Where it was called: the innermost of the parts that were named."""
    flops: int
    """Multiplications and additions of a product; of attention the causal half, where it is
    causal; none of a look-up; of anything else one for each number that goes in or comes out,
    whichever is more."""
    read: int
    """Bytes."""
    written: int
    weights: int
    """Bytes of parameters among those that are read."""
    calls: int = 1
    """Operations since the kernel before it, itself included: the program calls views too."""
    size: Size | None = None
    rows: int = 0
    """Queries of attention that are worked out at once for each sequence; 0 of anything else."""

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read + self.written


@dataclass
class Live:
    """Bytes of all storages that something still holds."""

    now: int = 0
    peak: int = 0
    _known: dict[int, Any] = field(default_factory=dict)

    def meet(self, tensor: Tensor) -> None:
        """Count the storage of ``tensor`` until nothing holds it."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known[key] = weakref.ref(storage, lambda _: self._gone(key, size))
        self.now += size
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int, size: int) -> None:
        del self._known[key]
        self.now -= size


class Recorder(TorchDispatchMode):
    """Notes every kernel that runs inside, and what is alive."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.live = Live()
        self.parts: list[str] = []
        self._calls = 0
        self._weights = {one.untyped_storage()._cdata for one in parameters}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func.overloadpacket is aten.bincount:
            return _even(args[0], _given(args, given, 2, "minlength") or 0)
        out = func(*args, **given)
        if func.namespace == "aten":
            self._note(func, args, given, out)
        return out

    def _note(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        inputs = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        outputs = [one for one in tree_leaves(out) if isinstance(one, Tensor)]
        for one in outputs:
            self.live.meet(one)
        self._calls += 1
        packet = func.overloadpacket
        changes = [_given(args, kwargs, place, one) for place, one in _written(func)]
        if not outputs or packet in ALLOCATIONS or (not changes and _is_view(inputs, outputs)):
            return
        written = [one for one in changes if isinstance(one, Tensor)] or outputs
        unread = {id(one) for one in written} if _only_written(func, packet) else set()
        sources = {id(one): one for one in inputs if id(one) not in unread}
        read = {key: _bytes(one) for key, one in sources.items()}
        if packet in LOOK_UPS:
            read[id(inputs[0])] = min(read[id(inputs[0])], sum(map(_bytes, outputs)))
        if not sum(one.numel() for one in written):
            return
        kind, size = _product(packet, args)
        weights = sum(read[key] for key, one in sources.items() if self._is_weight(one))
        self.kernels.append(
            Kernel(
                name=str(packet).removeprefix("aten."),
                kind=kind,
                part=self.parts[-1] if self.parts else "",
                flops=_flops(packet, args, kwargs, out, inputs, written),
                read=sum(read.values()),
                written=sum(map(_bytes, written)),
                weights=weights,
                calls=self._calls,
                size=size,
                rows=_query(packet, args).shape[-2] if kind == "attention" else 0,
            )
        )
        self._calls = 0

    def _is_weight(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._weights

    def start(self, *held: Tensor) -> int:
        """Forget what was noted; bytes of ``held``, which is alive from now on, and of the rest."""
        self.kernels, self._calls = [], 0
        for one in held:
            self.live.meet(one)
        self.live.peak = self.live.now
        return self.live.now

    def name_part(self, module: nn.Module, part: str) -> None:
        """From now on what runs inside ``module`` belongs to ``part``."""

        def enter(*_: Any) -> None:
            self.parts.append(part)

        def leave(*_: Any) -> None:
            self.parts.pop()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)


def _even(values: Tensor, length: int) -> Tensor:
    """Counts that add up to the number of ``values``: what is not known is taken to be even."""
    total, length = values.numel(), max(length, 1)
    share, more = divmod(total, length)
    with _disable_current_modes():
        return torch.tensor([share + (place < more) for place in range(length)])


def _written(func: Any) -> list[tuple[int, str]]:
    """Places and names of the arguments that an operation changes."""
    return [
        (place, one.name)
        for place, one in enumerate(func._schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    ]


def _given(args: Sequence[Any], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if place < len(args) else kwargs.get(name)


def _only_written(func: Any, packet: Any) -> bool:
    return packet in OVERWRITES or "out" in func._overloadname


def _is_view(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    held = {one.untyped_storage()._cdata for one in inputs}
    return all(one.untyped_storage()._cdata in held for one in outputs)


def _bytes(tensor: Tensor) -> int:
    """What is there: a tensor that repeats its numbers is as large as they are."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _product(packet: Any, args: Sequence[Any]) -> tuple[Kind, Size | None]:
    """The kind of an operation, and its size where it is a product."""
    if packet in ATTENTION:
        return "attention", None
    if packet in (aten.mm, aten.bmm):
        a, b = args[:2]
    elif packet in (aten.addmm, aten.baddbmm):
        a, b = args[1:3]
    else:
        return ("product" if packet in flop_registry else "other"), None
    count = prod(a.shape[:-2])
    return "product", Size(count, a.shape[-2], a.shape[-1], b.shape[-1])


def _query(packet: Any, args: Sequence[Any]) -> Tensor:
    """Of attention; its backward names the gradient first."""
    return args[0 if packet is aten._scaled_dot_product_flash_attention_for_cpu else 1]


def _flops(
    packet: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    out: Any,
    inputs: Sequence[Tensor],
    written: Sequence[Tensor],
) -> int:
    if packet in ATTENTION:
        query, key, value = args[:3]
        if packet is not aten._scaled_dot_product_flash_attention_for_cpu:
            query, key, value = args[1:4]
        whole = 2 * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])
        causal = _causal(packet, args, kwargs)
        backward = packet is not aten._scaled_dot_product_flash_attention_for_cpu
        # scores again, and two products for each of the forward's two
        return int(whole * (2.5 if backward else 1) / (2 if causal else 1))
    if packet in LOOK_UPS:
        return 0
    count: Callable[..., int] | None = flop_registry.get(packet)
    if count is not None:
        return count(*args, **kwargs, out_val=out)
    return max(sum(one.numel() for one in inputs), sum(one.numel() for one in written))


def _causal(packet: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    names = [one.name for one in packet.default._schema.arguments]
    place = names.index("is_causal")
    return bool(_given(args, kwargs, place, "is_causal"))
