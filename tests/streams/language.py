"""A made-up language whose next token needs the token, the chunk, the sentence or the domain."""

import numpy as np
import torch
from torch import Tensor

from depthbench.data.dataset import Dataset

SYMBOLS = 8
CYCLE = 5
CHUNK = 2 * CYCLE
"""Tokens of a chunk; a sentence is two chunks."""
DOMAINS = 3
VOCAB = 4 * SYMBOLS + DOMAINS + 1
START = VOCAB - 1


def document(domain: int, length: int, generator: np.random.Generator) -> np.ndarray:
    """Start, then cycles of: any symbol, its successor, the chunk's first symbol, which chunk of
    its sentence this is, the domain.
    """
    tokens = [START, 4 * SYMBOLS + domain]
    chunk = first = 0
    while len(tokens) < length:
        symbol = int(generator.integers(SYMBOLS))
        if (len(tokens) - 2) % CHUNK == 0:
            first, chunk = symbol, chunk + 1
        tokens += [
            symbol,
            SYMBOLS + (symbol + 1) % SYMBOLS,
            2 * SYMBOLS + first,
            3 * SYMBOLS + chunk % 2,
            4 * SYMBOLS + domain,
        ]
    return np.array(tokens[:length])


def labels(tokens: Tensor) -> dict[str, Tensor]:
    """What each stream is to carry, at every position behind the head of a document."""
    body = tokens[:, 2:]
    places = torch.arange(body.shape[1])
    symbol = body.gather(1, (places // CYCLE * CYCLE).expand_as(body))
    first = body.gather(1, (places // CHUNK * CHUNK).expand_as(body))
    chunk = (places // CHUNK % 2).expand_as(body)
    domain = (tokens[:, 1:2] - 4 * SYMBOLS).expand_as(body)
    return {"token": symbol, "chunk": first, "sentence": chunk, "task": domain}


class Language(Dataset):
    """Batches of it, without files."""

    def __init__(self) -> None:
        self.vocab = VOCAB

    def batch(
        self,
        seed: int,
        step: int,
        sequences: int,
        length: int,
        rows: object = None,
    ) -> tuple[Tensor, Tensor]:
        generator = np.random.default_rng([seed, step % 2**32])
        drawn = generator.integers(DOMAINS, size=sequences)
        made = np.stack([document(int(one), length + 1, generator) for one in drawn])
        tokens = torch.from_numpy(made)
        return tokens[:, :-1], tokens[:, 1:]


def rows_of(count: int, length: int, seed: int = 0) -> tuple[list[list[int]], list[str]]:
    """Documents of each domain in turn, and their domains' names."""
    generator = np.random.default_rng([seed, 2**32])
    found = [document(n % DOMAINS, length, generator).tolist() for n in range(count)]
    return found, [f"domain {n % DOMAINS}" for n in range(count)]
