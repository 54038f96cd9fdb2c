"""All laws, in the order in which they are checked."""

from depthbench.check import compiled, function, signal, start, training
from depthbench.check.law import Law

LAWS = {
    law.name: law
    for law in (
        Law("facts", "the numbers that its equation fixes are there", start.facts),
        Law("causality", "no logit depends on a later token", function.causal),
        Law("batch", "sequences of a batch do not touch each other", function.apart),
        Law("programs", "blocks can be skipped, swapped, repeated and left out", function.programs),
        Law("taps", "every branch runs once, can be watched, and matters", function.taps),
        Law("kernels", "fast operations give what torch's own give", function.kernels),
        Law("decoding", "cached logits equal the full forward's", function.decoding),
        Law("checkpointing", "recomputing changes no gradient", function.checkpointing),
        Law("mixing", "constrained mixing matrices are doubly stochastic", function.mixing),
        Law("start", "it starts as near to prenorm as it says", start.start),
        Law("seeds", "a seed fixes every bit", start.seeds),
        Law("saving", "a file and the meta device keep its function", start.saving),
        Law("parameters", "counted three ways, its parameters agree", start.parameters),
        Law("operations", "stated operations are those that run", start.operations),
        Law("precision", "bfloat16 autocast stays near float32", start.precision),
        Law("training", "every parameter moves and the loss falls", training.moving),
        Law("compiling", "one compiled graph, and one more for all lengths", compiled.compiling),
        Law("signal", "256 blocks give finite states and gradients", signal.propagation),
    )
}
