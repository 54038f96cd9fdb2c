"""Training by others: Trainer on our models, and LoRA around their projections."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from torch.utils.data import Dataset

from depthbench.errors import DepthbenchError
from depthbench.hub.wrapper import DepthBenchConfig, DepthBenchForCausalLM
from depthbench.nn.model import Model
from tests.oracles import GQA, config_of, tokens_of

# peft asks transformers by a name that transformers gives up
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
RULE = [(3 * place + 5) % 99 for place in range(12)]


class Rows(Dataset[dict[str, Any]]):
    """Rows of one sequence that can be learned."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = torch.tensor([(one + number) % 99 for one in RULE])
        return {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row}


def fresh(design: str, **backbone: Any) -> DepthBenchForCausalLM:
    choices = config_of(design, GQA, **backbone)
    return DepthBenchForCausalLM(DepthBenchConfig(architecture=choices.resolved()))


def trained(model: Any, folder: Path, **given: Any) -> list[float]:
    """The losses of a few steps of ``Trainer`` on CPU."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        max_steps=12,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
        **given,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Rows())
    trainer.train()
    assert trainer.evaluate(Rows())["eval_loss"] > 0
    return [one["loss"] for one in trainer.state.log_history if "loss" in one]


@pytest.mark.parametrize(("design", "backbone"), [("hc", {}), ("prenorm", {"tied_head": True})])
def test_trainer_trains(design: str, backbone: dict[str, Any], tmp_path: Path) -> None:
    losses = trained(fresh(design, **backbone), tmp_path)
    assert len(losses) == 12
    assert losses[0] == pytest.approx(4.6, abs=0.15)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("design", ["prenorm", "attnres"])
def test_lora_stands_around_projections(design: str, tmp_path: Path) -> None:
    """Without effect at first; then trained alone, saved, read and merged: the same logits."""
    model = fresh(design)
    start = {name: one.clone() for name, one in model.state_dict().items()}
    tokens = tokens_of(GQA, 2, 9)
    with torch.no_grad():
        before = model(tokens).logits
    settings = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=["qkv", "o", "gate_up", "down"], task_type="CAUSAL_LM"
    )
    adapted = peft.get_peft_model(model, settings)
    moving = {name for name, one in adapted.named_parameters() if one.requires_grad}
    assert len(moving) == GQA.layers * 4 * 2
    with torch.no_grad():
        torch.testing.assert_close(adapted(tokens).logits, before, rtol=1e-5, atol=1e-6)
    losses = trained(adapted, tmp_path / "t")
    assert losses[-1] < losses[0] - 0.02
    grads = {name: one for name, one in adapted.named_parameters() if name in moving}
    assert all(one.abs().max() > 0 for one in grads.values())
    adapted.eval()
    with torch.no_grad():
        after = adapted(tokens).logits
    assert (after - before).abs().max() > 1e-3
    kept = adapted.generate(input_ids=tokens, max_new_tokens=4, do_sample=False)
    adapted.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(_from(start, design), tmp_path / "adapter").eval()
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, after)
        merged = again.merge_and_unload()
        torch.testing.assert_close(merged(tokens).logits, after, rtol=1e-4, atol=1e-5)
    assert isinstance(merged, DepthBenchForCausalLM)
    assert torch.equal(merged.generate(tokens, max_new_tokens=4, do_sample=False), kept)


def _from(weights: dict[str, torch.Tensor], design: str) -> DepthBenchForCausalLM:
    model = fresh(design)
    model.load_state_dict(weights)
    return model


def test_the_fast_attention_does_not_pass_an_adapter_by() -> None:
    """A forward without a cache or mask, where the product is written out otherwise."""
    model, tokens = fresh("prenorm").eval(), tokens_of(GQA, 2, 9)
    settings = peft.LoraConfig(r=2, target_modules=["qkv"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, settings).eval()
    with torch.no_grad():
        found = adapted(tokens).logits
        mask = torch.ones_like(tokens)
        assert (found - adapted(tokens, attention_mask=mask).logits).abs().max() < 1e-5
        with adapted.disable_adapter():
            assert (found - adapted(tokens).logits).abs().max() > 1e-3
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(merged(tokens).logits, found, rtol=1e-4, atol=1e-5)


def test_adapters_on_routed_experts_are_refused() -> None:
    model = fresh("prenorm", name="moe", experts=4)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["gate_up"]))
    tokens = tokens_of(GQA, 2, 9)
    with pytest.raises(DepthbenchError, match=r"routed experts.*target_modules=\['qkv', 'o'\]"):
        adapted(tokens)


def test_every_projection_is_a_linear_layer_that_starts_as_before() -> None:
    """The base class draws nothing: global random numbers stay, and starts are the seed's."""
    torch.manual_seed(3)
    right = torch.rand(4)
    torch.manual_seed(3)
    model = Model.build(config_of("prenorm", GQA), 0)
    assert torch.equal(torch.rand(4), right)
    linear = [one for one in model.modules() if isinstance(one, torch.nn.Linear)]
    assert len(linear) == 4 * GQA.layers
    assert all(one.bias is None for one in linear)
