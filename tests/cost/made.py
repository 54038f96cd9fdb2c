"""Candidates with known numbers."""

from depthbench.cost.candidates import Candidate
from depthbench.shapes import Shape


def made(
    name: str,
    *,
    loss: float,
    params: int = 1000,
    kv: int = 100,
    tpot: float = 0.01,
    memory: int = 10_000,
    ttft: float = 0.1,
    flops: int = 10**9,
    seconds: float = 60.0,
    spread: float = 0.01,
    seeds: int = 3,
) -> Candidate:
    """A candidate of design ``name`` whose seeds lie ``spread`` apart around ``loss``."""
    offsets = [spread * (seed - (seeds - 1) / 2) for seed in range(seeds)]
    # of three seeds a spread apart the sample deviation is that spread
    deviation = None if seeds == 1 else spread * (seeds * (seeds + 1) / 12) ** 0.5
    return Candidate(
        name=name,
        study="made",
        label=name,
        shape=Shape(layers=2, width=16, heads=2, kv_heads=2, ffn=24, vocab=257),
        learning_rate=1e-2,
        trials=seeds,
        by_seed={seed: loss + off for seed, off in enumerate(offsets)},
        bits_per_byte=loss,
        nats_per_token=loss * 0.69,
        standard_deviation=deviation,
        parameters=params,
        kv_bytes=kv,
        state_bytes=10,
        memory_bytes=memory,
        tpot_seconds=tpot,
        ttft_seconds=ttft,
        training_tokens=1_000_000,
        training_flops=flops,
        training_seconds=seconds,
        trained_on="cpu of host",
    )
