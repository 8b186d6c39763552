"""Attention whose arithmetic nobody here wrote: test_jax_attention.py. XLA's products and softmax on the CPU, by the contract each way of writing it has.

Says SKIPPED where JAX is missing.
"""
import sys
from pathlib import Path

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED test_jax_attention.py: {missing}")
    sys.exit(0)

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "verify"))
from grade_tensors import grade  # noqa: E402

BF16, FP32, SCALE, LOG2_E = jnp.bfloat16, jnp.float32, 1 / 24, 1.4426950408889634
SHAPES = [([512], 16, 1.0), ([320, 64, 2], 16, 1.0), ([192], 64, 4.0)]
failed = 0


def softmax_in_bf16(q, kv):
    """Scores, exponentials and their sum in bf16."""
    return jax.nn.softmax((q @ kv.T) * BF16(SCALE), -1) @ kv[:, :512]


def eager_bf16(q, kv):
    """As PyTorch does in bf16 tensors: scores are rounded twice, softmax is fp32 inside, normalised P is rounded."""
    scores = ((q @ kv.T).astype(FP32) * SCALE).astype(BF16)
    return jax.nn.softmax(scores.astype(FP32), -1).astype(BF16) @ kv[:, :512]


def all_fp32(q, kv):
    q, kv = q.astype(FP32), kv.astype(FP32)
    return (jax.nn.softmax((q @ kv.T) * SCALE, -1) @ kv[:, :512]).astype(BF16)


def flash(q, kv, scale=SCALE):
    """Flash decode: tiles of 64 tokens, base 2, P to bf16 after the row sum."""
    m, l, out = jnp.full((len(q), 1), -jnp.inf), jnp.zeros((len(q), 1)), jnp.zeros((len(q), 512))
    for first in range(0, len(kv), 64):
        tile = kv[first:first + 64]
        scores = jnp.dot(q, tile.T, preferred_element_type=FP32) * FP32(scale * LOG2_E)
        top = jnp.maximum(m, scores.max(-1, keepdims=True))
        p, old = jnp.exp2(scores - top), jnp.exp2(m - top)
        l = l * old + p.sum(-1, keepdims=True)
        out = out * old + jnp.dot(p.astype(BF16), tile[:, :512], preferred_element_type=FP32)
        m = top
    return (out / l).astype(BF16)


def verdicts(attention, contract):
    """Did it pass, on each shape?"""
    passed = []
    for seed, (lengths, heads, size) in enumerate(SHAPES):
        random = np.random.default_rng(seed)
        q = jnp.asarray(random.standard_normal((len(lengths), heads, 576)) * size, BF16)
        kv = jnp.asarray(random.standard_normal((sum(lengths), 576)), BF16)
        kv_indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        out = jnp.stack([attention(q[b], kv[kv_indptr[b]:kv_indptr[b + 1]]) for b in range(len(lengths))])
        codes = dict(zip(("out", "q", "kv"), (np.asarray(t).view(np.uint16) for t in (out, q, kv))))
        passed.append(grade(**codes, q_format="bf16", kv_format="bf16", out_format="bf16", qo_indptr=np.arange(len(lengths) + 1, dtype=np.int32),
                            kv_indptr=kv_indptr, sm_scale=SCALE, contract=contract).passed)
    return passed


def check(name, holds):
    global failed
    failed += not holds
    print(f"{'ok' if holds else 'FAILED':6} {name}")


check("eager bf16 passes as torch-bf16", all(verdicts(eager_bf16, "torch-bf16")))
check("and not as a kernel that keeps its scores in fp32", not any(verdicts(eager_bf16, "")))
check("fp32 passes as what it is", all(verdicts(all_fp32, "p=fp32")))
check("and as a kernel that rounds P", all(verdicts(all_fp32, "")))
check("flash decode passes as the default", all(verdicts(flash, "")))
check("and as flashmla and triton-splitk", all(verdicts(flash, "flashmla") + verdicts(flash, "triton-splitk")))
check("a softmax in bf16 is no kernel of the default contract", not any(verdicts(softmax_in_bf16, "")))
check("a dropped token fails", not any(verdicts(lambda q, kv: flash(q, kv[:-1]), "")))
check("a doubled one, too", not any(verdicts(lambda q, kv: flash(q, jnp.concatenate([kv, kv[-1:]])), "")))
check("so does a scale 1 % off", not any(verdicts(lambda q, kv: flash(q, kv, SCALE * 1.01), "")))
sys.exit(failed > 0)
