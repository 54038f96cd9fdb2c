import copy
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.hf_versions import before
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.load import Parts
from depthbench.probes.program import Program, plain, program_of, repeat, reverse, skip, swap
from depthbench.probes.subject import Call
from depthbench.probes.walk import Limits, Walker
from depthbench.probes.weights import hash_of
from tests.probes.tiny import FAMILIES, GROUPED, PARALLEL, TYPES, VOCAB, random_of, since_5, tiny

ROWS = [[5, 61, 7, 8, 9, 31, 2, 17, 4], [3, 2, 1, 90, 44], [11, 12, 13, 14, 15, 16, 98]]
SPLIT = [name for name in FAMILIES if name not in PARALLEL | {"deepseek_v4", "opt"}]


@pytest.fixture(scope="module")
def subjects() -> dict[str, HuggingFaceSubject]:
    return {name: HuggingFaceSubject(tiny(name), name) for name in FAMILIES}


def run(session: Any, program: Program) -> Tensor:
    state = session.open()
    for call in program:
        state = session.run(call, state, 1)
    return state


def logits(session: Any, program: Program) -> Tensor:
    return session.logits(session.readout(run(session, program)))


def close(found: Tensor, right: Tensor, rtol: float = 1e-5) -> None:
    torch.testing.assert_close(found, right, rtol=rtol, atol=rtol * float(right.abs().max()))


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_readout_give_the_models_own(
    family: str, subjects: dict[str, HuggingFaceSubject]
) -> None:
    subject = subjects[family]
    session = subject.session(Batch.of_rows(ROWS))
    found = logits(session, plain(4))
    assert torch.equal(found, session.own_logits())
    for number, row in enumerate(ROWS):
        own = subject.model(torch.tensor([row]), output_hidden_states=True, use_cache=False)
        close(found[number, : len(row)], own.logits[0])
        for depth in range(4):
            state = run(session, plain(4)[:depth])[number, : len(row)]
            close(state, own.hidden_states[depth][0])


def test_facts(subjects: dict[str, HuggingFaceSubject]) -> None:
    facts = subjects["llama"].facts
    attention = 2 * 32 * 32 + 2 * 32 * 16
    assert facts.parameters == 4 * (attention + 3 * 32 * 48 + 2 * 32) + 32 + 2 * VOCAB * 32
    assert (facts.layers, facts.width, facts.streams, facts.vocab) == (4, 32, 1, VOCAB)
    assert (facts.kind, facts.model) == ("huggingface", "LlamaForCausalLM")


@since_5
def test_streams_are_known(subjects: dict[str, HuggingFaceSubject]) -> None:
    many = subjects["deepseek_v4"]
    session = many.session(Batch.of_rows(ROWS))
    assert many.facts.streams == 4
    assert session.depth_state(session.open()).shape == (3, 9, 4 * 32)
    assert session.readout(session.open()).shape == (3, 9, 32)


@torch.no_grad()
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "opt"])
def test_a_skip_is_the_model_without_that_layer(
    family: str, subjects: dict[str, HuggingFaceSubject]
) -> None:
    subject = subjects[family]
    session = subject.session(Batch.of_rows(ROWS))
    for block in (0, 2):
        shorter = copy.deepcopy(subject.model)
        del shorter.get_submodule(subject.layout.names.blocks)[block]
        config = shorter.config
        config.num_hidden_layers = 3
        if family == "gemma3":
            config.layer_types = config.layer_types[:block] + config.layer_types[block + 1 :]
        close(
            logits(session, skip(4, block)),
            shorter(session.batch.tokens, use_cache=False).logits,
        )


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("left", [False, True])
def test_programs_side_by_side_equal_each_alone(
    family: str, left: bool, subjects: dict[str, HuggingFaceSubject]
) -> None:
    subject = subjects[family]
    if left and subject.left is not None:
        with pytest.raises(DepthbenchError, match=r"padding on its left\. Pad on the right"):
            subject.session(Batch.of_rows(ROWS, left=True))
        return
    session = subject.session(Batch.of_rows(ROWS, left=left))
    programs = [swap(4, i, j) for i in range(4) for j in range(i)]
    programs += [repeat(4, 1), reverse(4, 1, 4), program_of([3, 3, 0], 4)]
    seen = 0
    for number, state in Walker(session, Limits(tokens=80)).ends(programs):
        right = run(session, programs[number])
        close(state[session.batch.valid], right[session.batch.valid])
        seen += 1
    assert seen == len(programs)


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_and_batch_size_change_nothing(
    family: str, subjects: dict[str, HuggingFaceSubject]
) -> None:
    subject = subjects[family]
    rows = (ROWS * 3)[:8]
    program = swap(4, 1, 2)
    batches = [Batch.of_rows(rows)]
    if subject.left is None:
        batches.append(Batch.of_rows(rows, left=True))
    alone = [logits(subject.session(Batch.of_rows([row])), program)[0] for row in rows]
    for batch in batches:
        close(logits(subject.session(batch), program)[batch.valid], torch.cat(alone))


@torch.no_grad()
@pytest.mark.parametrize("family", SPLIT)
def test_attention_and_then_feedforward_are_the_block(
    family: str, subjects: dict[str, HuggingFaceSubject]
) -> None:
    session = subjects[family].session(Batch.of_rows(ROWS))
    state = session.run(Call(0, 0), session.open(), 1)
    half = session.run(Call(1, 1, "attention"), state, 1)
    close(session.run(Call(1, 1, "feedforward"), half, 1), session.run(Call(1, 1), state, 1))
    assert (half - state).norm() > 0.01 * state.norm()


@torch.no_grad()
@pytest.mark.parametrize("family", sorted(PARALLEL))
def test_parallel_branches_add_up(family: str, subjects: dict[str, HuggingFaceSubject]) -> None:
    session = subjects[family].session(Batch.of_rows(ROWS))
    state = session.run(Call(0, 0), session.open(), 1)
    parts = [session.run(Call(1, 1, part), state, 1) for part in ("attention", "feedforward")]
    close(sum(parts) - state, session.run(Call(1, 1), state, 1))


@torch.no_grad()
def test_attention_alone_by_hand(subjects: dict[str, HuggingFaceSubject]) -> None:
    session = subjects["llama"].session(Batch.of_rows([ROWS[0]]))
    model, z = subjects["llama"].model, session.open()
    block = model.model.layers[2]
    places = torch.arange(z.shape[1])[None]
    rotary = model.model.rotary_emb(z, places)
    y, _ = block.self_attn(
        block.input_layernorm(z), position_embeddings=rotary, attention_mask=None
    )
    close(session.run(Call(2, 0, "attention"), z, 1), z + y)
    y = block.mlp(block.post_attention_layernorm(z))
    close(session.run(Call(2, 0, "feedforward"), z, 1), z + y)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", pytest.param("deepseek_v4", marks=since_5)])
def test_a_linear_map_predicts_the_update(
    family: str, subjects: dict[str, HuggingFaceSubject]
) -> None:
    session = subjects[family].session(Batch.of_rows(ROWS))
    state = session.open()
    z = session.depth_state(state)
    assert torch.equal(session.with_depth_state(state, z), state)
    after, [update] = session.outputs(Call(1, 1), state)
    close(z + update, session.depth_state(after))
    drawn = torch.randn(z.shape[-1], z.shape[-1], generator=torch.Generator().manual_seed(1))
    session.maps = {1: [drawn]}
    found = session.run(Call(1, 1, "linear"), state, 1)
    assert found.shape == state.shape
    close(session.depth_state(found), z + z @ drawn)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny("llama")
    wanted = {name: one.requires_grad for name, one in model.named_parameters()}
    model.train()
    before = hash_of(model)
    subject = HuggingFaceSubject(model, "x")
    session = subject.session(Batch.of_rows(ROWS))
    with torch.no_grad():
        first = logits(session, swap(4, 0, 3))
    with pytest.raises(IndexError):
        subject.session(Batch.of_rows([[1, VOCAB]]))
    with pytest.raises(RuntimeError):
        session.run(Call(1, 1, "attention"), torch.zeros(1, 1, 7), 1)
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks, *module._forward_pre_hooks)
    ]
    assert hooks == []
    assert hash_of(model) == before == subject.facts.weights_hash
    assert {name: one.requires_grad for name, one in model.named_parameters()} == wanted
    assert not model.training
    with torch.no_grad():
        assert torch.equal(logits(session, swap(4, 0, 3)), first)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("family", ["llama", "mixtral", "gemma3"])
def test_forward_mode_agrees_with_backward(family: str) -> None:
    """<v, J u> = <Jᵀ v, u>."""
    subject = HuggingFaceSubject(tiny(family), family)
    session = subject.session(Batch.of_rows([ROWS[0]]))
    z = session.run(Call(0, 0), session.open(), 1).detach()
    drawn = torch.Generator().manual_seed(3)
    u, v = torch.randn(2, *z.shape, generator=drawn)

    def block(x: Tensor) -> Tensor:
        return session.run(Call(1, 1), x, 1)

    kinds = [] if before("5") else [subject.model.get_experts_implementation()]
    with session.differentiable():
        _, along = torch.func.jvp(block, (z,), (u,))
    _, back = torch.func.vjp(block, z)
    right = (back(v)[0].detach() * u).sum()
    assert (along.detach() * v).sum().item() == pytest.approx(right.item(), rel=1e-4)
    if kinds:
        assert subject.model.get_experts_implementation() == kinds[0]


def test_parts_by_name(subjects: dict[str, HuggingFaceSubject]) -> None:
    parts = Parts(blocks="model.layers", norm="model.norm", head="lm_head")
    named = HuggingFaceSubject(tiny("llama"), "x", parts)
    batch = Batch.of_rows(ROWS)
    with torch.no_grad():
        right = logits(subjects["llama"].session(batch), plain(4))
        assert torch.equal(logits(named.session(batch), plain(4)), right)
    for wrong, words in (
        (
            Parts(blocks="model.layer"),
            r"--blocks model.layer is no list of blocks of LlamaForCausalLM, did you mean "
            r"'model.layers'\? Its lists: model.layers \(4\)",
        ),
        (
            Parts(norm="model.norms"),
            r"--norm model.norms does not run behind the last block of LlamaForCausalLM, did you "
            r"mean 'model.norm'\? What does: model.norm, lm_head",
        ),
        (Parts(head="head"), r"--head head does not run .* What does: model.norm, lm_head"),
        # the head of a model is no final norm: nothing is left to decode
        (Parts(head="model.norm"), r"give \(3, 12, 32\) logits, not its own"),
    ):
        with pytest.raises(DepthbenchError, match=words):
            HuggingFaceSubject(tiny("llama"), "x", wrong)


def test_a_model_without_a_final_norm_is_not_guessed_at() -> None:
    model = tiny("opt")
    decoder = model.model.decoder
    decoder.final_layer_norm = None
    with pytest.raises(
        DepthbenchError,
        match=r"OPTForCausalLM: no final norm among what runs behind its last block: "
        r"model.decoder.project_out \(Linear\), lm_head \(Linear\).*--blocks model.layers --norm "
        r"model.norm --head lm_head; a model without one: --norm lm_head",
    ):
        HuggingFaceSubject(model, "x")
    named = HuggingFaceSubject(model, "x", Parts(norm="model.decoder.project_out"))
    session = named.session(Batch.of_rows(ROWS))
    with torch.no_grad():
        assert torch.equal(logits(session, plain(4)), session.own_logits())


class Twisted(nn.Module):
    """A final norm by another name, with a list of as many modules as there are blocks."""

    def __init__(self, inner: nn.Module, lists: int) -> None:
        super().__init__()
        self.inner = inner
        self.extra = nn.ModuleList(nn.Identity() for _ in range(lists))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_an_unclear_layout_says_what_was_tried() -> None:
    model = tiny("llama")
    model.model.norm = Twisted(model.model.norm, 4)
    with pytest.raises(
        DepthbenchError,
        match=r"2 lists of num_hidden_layers = 4 modules.*model.layers \(4\), model.norm.extra "
        r"\(4\)\). Name the parts, such as --blocks model.layers",
    ):
        HuggingFaceSubject(model, "x")
    with pytest.raises(DepthbenchError, match=r"model.norm \(Twisted\), lm_head \(Linear\)"):
        HuggingFaceSubject(model, "x", Parts(blocks="model.layers"))
    HuggingFaceSubject(model, "x", Parts(blocks="model.layers", norm="model.norm"))


def test_what_is_no_plain_decoder_is_refused_by_name() -> None:
    small: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    with pytest.raises(DepthbenchError, match="BertLMHeadModel: its logits depend on later tokens"):
        HuggingFaceSubject(random_of(transformers.BertConfig(**small)), "x")
    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4
    )
    model: Any = transformers.T5ForConditionalGeneration(config)
    with pytest.raises(DepthbenchError, match="T5ForConditionalGeneration is an encoder with a"):
        HuggingFaceSubject(model, "x")


@since_5
def test_blocks_that_are_passed_more_than_the_state_are_refused() -> None:
    shared = transformers.Gemma4TextConfig(
        **GROUPED,
        layer_types=TYPES,
        sliding_window=4,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCAB,
    )
    with pytest.raises(DepthbenchError, match="Gemma4ForCausalLM: earlier blocks pass block 0"):
        HuggingFaceSubject(random_of(shared), "x")
    model = tiny("llama")
    seen: list[Tensor] = []

    def passed_on(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "extra": (seen[-1],)}

    model.model.layers[0].register_forward_hook(lambda *given: seen.append(given[2]))
    model.model.layers[2].register_forward_pre_hook(passed_on, with_kwargs=True)
    with pytest.raises(DepthbenchError, match="earlier blocks pass block 2 more than their state"):
        HuggingFaceSubject(model, "x")


def test_text_that_is_too_long_is_refused(subjects: dict[str, HuggingFaceSubject]) -> None:
    with pytest.raises(DepthbenchError, match=r"length = 65: the model has 64 positions.*--length"):
        subjects["gpt2"].session(Batch.of_rows([[1] * 65]))


def test_sublayers_that_are_no_modules_are_named(subjects: dict[str, HuggingFaceSubject]) -> None:
    opt = subjects["opt"]
    assert opt.whole is not None
    assert "OPTDecoderLayer" in opt.whole
    session = opt.session(Batch.of_rows(ROWS))
    with pytest.raises(DepthbenchError, match=r"OPTDecoderLayer.*cannot run apart"):
        session.run(Call(0, 0, "attention"), session.open(), 1)
