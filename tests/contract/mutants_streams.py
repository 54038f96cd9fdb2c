"""Alterations of the designs with several streams, or fractions of one."""

from tests.contract.mutant import Mutant

STREAMS = [
    Mutant(
        "streams: branch reads the sum without norm",
        "designs/stream_connection.py",
        "self.norm(read_streams(state, route.read, self.kernels))",
        "read_streams(state, route.read, self.kernels)",
        "designs/test_hc.py",
    ),
    Mutant(
        "streams: work of the mix left out",
        "designs/stream_connection.py",
        "entries * mixed,",
        "0,",
        "cost/test_own_work.py",
    ),
    Mutant(
        "resi_dual: branch reads the sum of the streams",
        "designs/resi_dual.py",
        "return state[:, :, 0], Route()",
        "return state.sum(2), Route()",
        "designs/test_resi_dual.py",
    ),
    Mutant(
        "resi_dual: second stream normed too",
        "designs/resi_dual.py",
        "self.norm(post), pre]",
        "self.norm(post), self.norm(pre)]",
        "designs/test_resi_dual.py",
    ),
    Mutant(
        "resi_dual: second stream read out without norm",
        "designs/resi_dual.py",
        "return post + self.norm(pre)",
        "return post + pre",
        "designs/test_resi_dual.py",
    ),
    Mutant(
        "mhc_lite: permutations transposed",
        "designs/mhc_lite.py",
        "for to in order for j in range(m)",
        "for j in range(m) for to in order",
        "designs/test_mhc_lite.py",
    ),
    Mutant(
        "mhc_lite: weights that do not sum to 1",
        "designs/mhc_lite.py",
        "torch.softmax(logits, dim=-1)",
        "torch.sigmoid(logits)",
        "designs/test_mhc_lite.py",
    ),
    Mutant(
        "mhc_lite: permutations in another order",
        "designs/mhc_lite.py",
        "for order in itertools.permutations(range(m))",
        "for order in sorted(itertools.permutations(range(m)), key=lambda p: p[::-1])",
        "designs/test_mhc_lite.py",
    ),
    Mutant(
        "mhc_lite: gate of the writes on the mix",
        "designs/manifold.py",
        "self.gates[2] * mix",
        "self.gates[1] * mix",
        "designs/test_mhc_lite.py",
    ),
    Mutant(
        "frac: matrices transposed",
        "designs/frac.py",
        "matrix.transpose(-1, -2)",
        "matrix",
        "designs/test_frac.py",
    ),
    Mutant(
        "frac: fractions interleaved",
        "designs/frac.py",
        "vector.unflatten(-1, (self.config.fractions, -1))",
        "vector.unflatten(-1, (-1, self.config.fractions)).mT",
        "designs/test_frac.py",
    ),
    Mutant(
        "frac: columns of Y and A exchanged",
        "designs/frac.py",
        "mix = mix + self.scale_read * change[..., m : 2 * m]",
        "mix = mix + self.scale_read * change[..., :m]",
        "designs/test_frac.py",
    ),
    Mutant(
        "frac: state passes unmixed",
        "designs/frac.py",
        "_mixed(self.split(state), route.mix) + written",
        "self.split(state) + written",
        "designs/test_frac.py",
    ),
    Mutant(
        "frac: work of the dynamic part left out",
        "designs/frac.py",
        "if not self.config.dynamic:\n            return mixes",
        "if self.config.dynamic:\n            return mixes",
        "cost/test_own_work.py",
    ),
]
