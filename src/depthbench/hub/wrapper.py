"""Every model of this package as a ``PreTrainedModel``: saved, loaded, generated and trained there.

The module imports transformers, so it is imported by name alone; see `depthbench.hub`.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from depthbench.errors import DepthbenchError
from depthbench.hub.past import PastTokens, padding_of
from depthbench.nn.backbones import backbone_kind
from depthbench.nn.block import Trace
from depthbench.nn.branch import Load
from depthbench.nn.ends import OwnHead
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import Parametrised, drawn
from depthbench.probes.hf_versions import cache_name

KIND = "depthbench"
"""``model_type`` in config.json."""
CACHE = cache_name()


class DepthBenchConfig(PretrainedConfig):
    """``config.json`` of a model of ours.

    ``architecture`` is the whole resolved `ModelConfig`; sizes beside it are for readers and
    follow from it.
    """

    model_type: ClassVar[str] = KIND
    keys_to_ignore_at_inference: ClassVar[list[str]] = [CACHE]

    def __init__(
        self,
        architecture: dict[str, Any] | None = None,
        documents_apart: bool = False,
        words: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        """``words``: tokens of the tokenizer, where rows of the head beyond them only pad it.

        ``documents_apart``: see `Model.keep_documents_apart`; ``seed``: of a fresh build.
        """
        self.architecture = architecture
        self.documents_apart = documents_apart
        self.words = words
        self.seed = seed
        if architecture is not None:
            kwargs |= sizes_of(ModelConfig.parse(architecture, "architecture"))
        super().__init__(**kwargs)

    def choices(self) -> ModelConfig:
        """Raises `DepthbenchError` for a config that names no architecture."""
        if self.architecture is None:
            raise DepthbenchError(
                "DepthBenchConfig: architecture is missing. Make one with "
                "DepthBenchConfig(architecture=model.config.resolved())"
            )
        return ModelConfig.parse(self.architecture, "architecture")


def sizes_of(config: ModelConfig) -> dict[str, Any]:
    """What other software looks for in a config.json."""
    shape = config.shape
    return {
        "vocab_size": shape.vocab,
        "hidden_size": shape.width,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "tie_word_embeddings": config.backbone.tied_head,
    }


class DepthBenchForCausalLM(PreTrainedModel, GenerationMixin):
    """A `Model` as a causal language model of Hugging Face."""

    config_class = DepthBenchConfig
    config: DepthBenchConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    # what was seen cannot be taken back, which assisted generation would do
    _is_stateful = True

    def __init__(self, config: DepthBenchConfig) -> None:
        super().__init__(config)
        self.model = Model(config.choices())
        if config.documents_apart:
            self.model.keep_documents_apart()
        self._no_split_modules = {"Block"}
        self.post_init()

    @classmethod
    def around(cls, model: Model, words: int | None = None, **tokens: Any) -> Any:
        """A wrapper around ``model`` itself; ``tokens`` are ids such as ``bos_token_id``."""
        config = DepthBenchConfig(
            architecture=model.config.resolved(),
            documents_apart=model.documents_apart,
            words=words,
            dtype=model.embed.weight.dtype,
            **tokens,
        )
        with torch.device("meta"):
            made = cls(config)
        made.model = model
        return made.train(model.training)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: PastTokens | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        past_key_values: PastTokens | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits, and what else is asked for; the last of ``hidden_states`` is normed.

        ``labels`` are the tokens themselves, -100 where nothing is to be predicted; in training the
        loss has the routers' penalty with it. ``use_cache`` is off unless asked for, as
        ``generate`` does, and gives no gradients. ``past_key_values`` is ``cache`` by its old name.
        """
        cache = past_key_values if cache is None else cache
        if input_ids is None or inputs_embeds is not None:
            raise DepthbenchError(
                "inputs_embeds: designs read the tokens themselves. Give input_ids alone"
            )
        if output_attentions:
            raise DepthbenchError(
                "output_attentions: attention is computed without its weights. Leave it out"
            )
        wants_states = _either(output_hidden_states, self.config.output_hidden_states)
        trace = Trace() if wants_states else None
        going_on = bool(use_cache) or cache is not None
        padding = padding_of(attention_mask, input_ids, cache, goes_on=going_on)
        loads: list[Load] = []
        if going_on:
            if labels is not None:
                raise DepthbenchError("labels: with a cache there is no gradient. Use one of both")
            cache = cache or self._nothing_seen(input_ids, padding)
            logits = self._step(input_ids, cache, trace, logits_to_keep)
        else:
            logits = self._whole(input_ids, padding, trace, logits_to_keep, loads)
        named: dict[str, Any] = {
            "loss": None
            if labels is None
            else self._loss(logits, labels, num_items_in_batch, loads),
            "logits": logits,
            "hidden_states": None if trace is None else self._states(trace),
            CACHE: cache,
        }
        found = CausalLMOutputWithPast(**named)
        wanted = _either(return_dict, self.config.return_dict)
        return found if wanted else found.to_tuple()

    def _nothing_seen(self, tokens: Tensor, padding: Tensor | None) -> PastTokens:
        return PastTokens(self.model, len(tokens), tokens.shape[1], padding)

    def _whole(
        self,
        tokens: Tensor,
        padding: Tensor | None,
        trace: Trace | None,
        keep: int | Tensor,
        loads: list[Load],
    ) -> Tensor:
        def logits(hidden: Tensor, *_: Any) -> Tensor:
            return self.model.head(hidden[:, _kept(keep)], self.model.embed.weight)

        into = loads if trace is None else trace.loads
        found = self.model(tokens, padding=padding, trace=trace, loads=into, finish=logits)
        loads.extend(() if trace is None else trace.loads)
        return found

    def _step(
        self, tokens: Tensor, cache: PastTokens, trace: Trace | None, keep: int | Tensor
    ) -> Tensor:
        cache.make_room(tokens.shape[1])
        only_last = isinstance(keep, int) and keep == 1
        found = self.model.step(tokens, cache.held, last=only_last, trace=trace)
        return found if only_last else found[:, _kept(keep)]

    def _states(self, trace: Trace) -> tuple[Tensor, ...]:
        """Depth states between blocks, streams on an axis of their own, and what the head reads."""
        width = self.model.config.shape.width
        assert trace.read is not None
        states = [
            one if one.shape[-1] == width else one.unflatten(-1, (-1, width))
            for one in trace.depth_states[:-1]
        ]
        return (*states, trace.read)

    def _loss(
        self, logits: Tensor, labels: Tensor, count: Tensor | int | None, loads: list[Load]
    ) -> Tensor:
        """Cross entropy of the next token over the tokenizer's words, in float32 or better."""
        logits = logits[:, :-1, : self.config.words].flatten(0, 1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        wanted = labels[:, 1:].flatten().to(logits.device)
        how = "mean" if count is None else "sum"
        loss = nn.functional.cross_entropy(logits, wanted, reduction=how)
        if count is not None:
            loss = loss / count
        if self.training and loads:
            loss = loss + backbone_kind(self.model.config.backbone).penalty(loads)
        return loss

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        cache: Any = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        is_first_iteration: bool | None = False,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The tokens that the cache does not hold yet, and the mask of all."""
        for known in ("position_ids", "cache_position"):
            kwargs.pop(known, None)
        cache = past_key_values if cache is None else cache
        seen = 0 if cache is None else cache.get_seq_length()
        return {
            "input_ids": input_ids[:, seen:],
            "attention_mask": attention_mask,
            CACHE: cache,
            "inputs_embeds": inputs_embeds,
            **kwargs,
        }

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Not that of transformers: ours holds what designs keep as well."""
        return False

    def get_input_embeddings(self) -> nn.Module:
        """The embedding, one of our own modules."""
        return self.model.embed

    def get_output_embeddings(self) -> nn.Module | None:
        """The head, if it has a matrix of its own; a tied one is the embedding at every call."""
        return self.model.head if isinstance(self.model.head, OwnHead) else None

    def resize_token_embeddings(self, *_: Any, **__: Any) -> Any:
        """Refused: the vocabulary is part of the architecture."""
        raise DepthbenchError(
            "resize_token_embeddings: the vocabulary is part of the architecture. Train with a "
            "larger shape.vocab"
        )

    def activation_checkpointing_enable(self, *_: Any, **__: Any) -> None:
        """Compute activations again in the backward pass, as ``train.checkpointing`` does."""
        self.model.checkpointing = True

    def activation_checkpointing_disable(self) -> None:
        """Keep activations."""
        self.model.checkpointing = False

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether they are computed again."""
        return self.model.checkpointing

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """What files did not fill starts as in `Model.build` with the config's seed."""
        own = [name for name, one in self.model.named_modules() if one is module]
        if not own or not isinstance(module, Parametrised):
            return
        starts = module.starts()
        for name, parameter in module.named_parameters(recurse=False):
            if "_is_hf_initialized" not in vars(parameter):
                whole = f"{own[0]}.{name}"
                parameter.copy_(drawn(starts[name], parameter.shape, self.config.seed, whole))


def _kept(keep: int | Tensor) -> slice | Tensor:
    """Positions whose logits are wanted; 0 is all."""
    return slice(-keep, None) if isinstance(keep, int) else keep


def _either(given: bool | None, otherwise: bool | None) -> bool:
    return bool(otherwise if given is None else given)


def register() -> None:
    """Make the Auto classes know these; once or often."""
    AutoConfig.register(KIND, DepthBenchConfig, exist_ok=True)
    AutoModelForCausalLM.register(DepthBenchConfig, DepthBenchForCausalLM, exist_ok=True)
