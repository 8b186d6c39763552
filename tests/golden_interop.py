#!/usr/bin/env python3
"""Golden files as others see them: golden_interop.py MLA_VERIFY

Reads golden files with the packages safetensors, numpy and ml_dtypes, computes a result in float64, writes it, and has `mla-verify check` grade it.
Says SKIPPED where a package is missing.
"""
import glob
import os
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError as missing:
    print(f"SKIPPED golden_interop.py: {missing}")
    sys.exit(0)

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden")


def load(path):
    """Metadata, and all tensors numpy has a type for."""
    tensors = {}
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        for name in file.keys():
            try:
                tensors[name] = file.get_tensor(name)
            except AttributeError:  # fp8: numpy has none
                assert name in ("q", "kv"), name
    return metadata, tensors


def attend(g, causal):
    """out and lse (natural) in float64 for contiguous KV, -inf and 0 where nothing is visible."""
    q, kv = g["q"].astype(np.float64), g["kv"].astype(np.float64)
    out, lse = np.zeros(q.shape[:2] + (512,)), np.full(q.shape[:2], -np.inf)
    for b in range(len(g["kv_indptr"]) - 1):
        rows = range(g["qo_indptr"][b], g["qo_indptr"][b + 1])
        for t, row in enumerate(rows):
            n = g["kv_indptr"][b + 1] - g["kv_indptr"][b]
            seen = max(0, n - len(rows) + t + 1) if causal else n
            k = kv[g["kv_indptr"][b] : g["kv_indptr"][b] + seen]
            if seen:
                score = q[row] @ k.T * float(g["sm_scale"][0])
                top = score.max(axis=1, keepdims=True)
                weight = np.exp(score - top)
                out[row] = weight @ k[:, :512] / weight.sum(axis=1, keepdims=True)
                lse[row] = top[:, 0] + np.log(weight.sum(axis=1))
    return out, lse


def check(verify, golden, out, lse):
    """Exit code and text of mla-verify check for these outputs."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.safetensors")
        save_file({"out": out, "lse": lse}, result)
        done = subprocess.run([verify, "check", golden, result], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def expect(condition, message):
    if not condition:
        sys.exit(f"FAILED {message}")


def main(verify):
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.safetensors"))):
        metadata, g = load(path)
        expect(metadata["mla_golden"] == "1" and "heads=" in metadata["case"], path)
        expect(g["out"].dtype == np.float32 and g["out"].shape == g["bound"].shape == g["sigma"].shape, path)
        expect(np.isfinite(g["out"]).all() and (g["bound"] >= 0).all(), path)

    path = glob.glob(os.path.join(FOLDER, "heads-2-q-len-2-1-kv-len-14-3-causal-1-*.safetensors"))[0]
    metadata, g = load(path)
    codes = g["q"].view(np.uint16).astype(np.uint32) << 16
    expect(g["q"].dtype == ml_dtypes.bfloat16 and (g["q"].astype(np.float32) == codes.view(np.float32)).all(), "values of a bf16 tensor")

    out, lse = attend(g, causal=True)
    expect((abs(out - g["out"]) <= abs(g["out"]) * 2.0**-24 + 1e-12).all(), "the stored result is float64's, rounded")
    lse = np.where(np.isinf(lse), np.inf, lse / np.log(2)).astype(np.float32)  # the case says lse=2,+inf
    rounded = out.astype(ml_dtypes.bfloat16)
    expect((abs(rounded.astype(np.float64) - g["out"]) <= g["bound"]).all(), "a right result is within the stored bound")

    code, text = check(verify, path, rounded, lse)
    expect(code == 0 and "PASSED" in text, f"a right bf16 result passes:\n{text}")
    code, text = check(verify, path, out.astype(np.float32), lse)
    expect(code == 0 and "out=fp32" in text, f"a right fp32 result passes:\n{text}")
    rounded[1, 1, 300] += 1
    code, text = check(verify, path, rounded, lse)
    expect(code == 1 and "seq 0 q 1 head 1 col 300" in text, f"a tampered result fails, naming the place:\n{text}")
    code, text = check(verify, path, rounded[:, :1], lse)
    expect(code == 2 and "tensor 'out'" in text, f"a result of another shape is refused:\n{text}")
    print("PASSED golden_interop.py")


if __name__ == "__main__":
    main(sys.argv[1])
