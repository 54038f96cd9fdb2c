"""Scores of rows of Hugging Face models against their own forward, row by row."""

import pytest
import torch

from depthbench.evals.score import scores_of
from depthbench.evals.windows import Window
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.program import plain, skip, swap
from tests.probes.small import rows
from tests.probes.tiny import since_5, tiny


@pytest.mark.parametrize("family", ["llama", "gpt2", pytest.param("deepseek_v4", marks=since_5)])
def test_batch_and_padding_change_nothing(family: str) -> None:
    """One row at a time, eight, and eight padded on the left where the family reads that."""
    model = tiny(family)
    subject = HuggingFaceSubject(model, "test")
    texts = rows([20, 5, 13, 2, 20, 9, 31, 7, 12])
    windows = [Window(tuple(row), 1 + n % 2 * (len(row) > 3), n, 0) for n, row in enumerate(texts)]
    hand = []
    with torch.no_grad():
        for one in windows:
            ids = torch.tensor([one.ids])
            each = model(ids, use_cache=False).logits.double().log_softmax(-1)[0, :-1]
            chosen = each.gather(1, ids[0, 1:, None])[:, 0]
            hand.append(-chosen[one.first - 1 :].sum().item())
    for settings in ({"rows": 1}, {"rows": 8}, {"rows": 8, "left": True}):
        if settings.get("left") and subject.left is not None:
            continue
        found = scores_of(subject, windows, [plain(4)], **settings)  # pyright: ignore
        assert found.nats[0].tolist() == pytest.approx(hand, rel=2e-5)


def test_a_sweep_is_each_program_alone() -> None:
    subject = HuggingFaceSubject(tiny("llama"), "test")
    windows = [Window(tuple(row), 1, n, 0) for n, row in enumerate(rows([20, 5, 13]))]
    programs = [plain(4), skip(4, 1), swap(4, 0, 3), skip(4, 0, 2)]
    together = scores_of(subject, windows, programs, 2)
    for number, program in enumerate(programs):
        alone = scores_of(subject, windows, [program], 1)
        assert together.nats[number].tolist() == pytest.approx(alone.nats[0].tolist(), rel=2e-5)
    assert len({round(float(one), 3) for one in together.nats[:, 0]}) == 4
