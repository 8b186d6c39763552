"""verify/grade_tensors.py from a plain Python: test_grade_tensors.py. With buffers of the standard library, and with numpy and torch where they are."""
import array
import math
import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "verify"))
from grade_tensors import grade  # noqa: E402

HEADS, LENGTHS, SCALE = 2, [5, 0, 3], 0.125
random.seed(1)
failed = 0


def check(name, holds):
    global failed
    failed += not holds
    print(f"{'ok' if holds else 'FAILED':6} {name}")


def refused(name, **changes):
    try:
        grade(**{**made, **changes})
        check(name + " is refused", False)
    except ValueError:
        check(name + " is refused", True)


def bf16(values):
    """Codes of values that bf16 holds exactly."""
    return array.array("H", [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values])


def attention(q, kv):
    """By the definition, in double. One query token a sequence."""
    out, lse, first = [], [], 0
    for b, length in enumerate(LENGTHS):
        keys = [kv[576 * j:576 * (j + 1)] for j in range(first, first + length)]
        first += length
        for h in range(HEADS):
            row = q[576 * (b * HEADS + h):576 * (b * HEADS + h + 1)]
            scores = [SCALE * sum(x * y for x, y in zip(row, key)) for key in keys]
            top = max(scores, default=0)
            weights = [math.exp(s - top) for s in scores]
            total = sum(weights)
            out += [sum(w * key[c] for w, key in zip(weights, keys)) / total if keys else 0 for c in range(512)]
            lse.append(top + math.log(total) if keys else -math.inf)
    return out, lse


q = [random.randint(-8, 8) / 16 for _ in range(len(LENGTHS) * HEADS * 576)]
kv = [random.randint(-8, 8) / 8 for _ in range(sum(LENGTHS) * 576)]
out, lse = attention(q, kv)
made = dict(out=array.array("f", out), lse=array.array("f", lse), q=bf16(q), q_format="bf16", kv=bf16(kv), kv_format="bf16", heads=HEADS,
            qo_indptr=array.array("i", [0, 1, 2, 3]), kv_indptr=array.array("i", [0, 5, 5, 8]), sm_scale=SCALE)

right = grade(**made)
check("the definition passes", right.passed)
check("and its report says so", right.text.startswith("PASSED  heads=2 batch=3 kv_len=5,0,3") or right.text.startswith("PASSED  heads=2 kv_len=5,0,3"))
check("its measures are those of the JSON report", right.measures["rows"] == 6 and right.measures["empty_rows"] == 2)
check("a list of tokens passes", grade(**made, kv_indices=array.array("i", range(8))).passed)
check("without lse it passes", grade(**{**made, "lse": None}).passed)

wrong = array.array("f", out)
wrong[513] += 0.25
found = grade(**{**made, "out": wrong})
check("a wrong element fails", not found.passed and found.measures["worst"]["head"] == 1 and found.measures["worst"]["column"] == 1)
try:
    found.check()
    check("check raises", False)
except AssertionError as error:
    check("check raises, with the report", "1 of 3072 elements outside the bound" in str(error))

refused("an output of another size", out=array.array("f", out[:-1]))
refused("a missing lse row", lse=array.array("f", lse[:-1]))
refused("a tensor without a type", q_format=None)
refused("a type that does not exist", kv_format="bf17")
refused("64-bit indices", qo_indptr=array.array("q", [0, 1, 2, 3]))
refused("lengths that go back", kv_indptr=array.array("i", [0, 5, 4, 8]))
refused("too short a list of tokens", kv_indices=array.array("i", range(7)))
refused("an unknown contract", contract="p=bf17")

try:
    import numpy
    arrays = {k: numpy.array(v) if isinstance(v, array.array) else v for k, v in made.items()}
    shaped = {**arrays, "out": arrays["out"].reshape(3, HEADS, 512), "q": arrays["q"].reshape(3, HEADS, 576), "heads": None}
    check("numpy's arrays pass", grade(**shaped).passed)
    shaped["out"][0, 1, 1] += 0.25
    check("and fail", not grade(**shaped).passed)
except ImportError:
    print("SKIPPED numpy: it is not installed")

try:
    import torch
    tensor = lambda codes, *shape: torch.tensor(list(codes), dtype=torch.float32).reshape(*shape)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = dict(out=tensor(out, 3, HEADS, 512).to(device), lse=tensor(lse, 3, HEADS).to(device), q=tensor(q, 3, HEADS, 576).bfloat16().to(device),
                 kv=tensor(kv, 8, 576).bfloat16().to(device), qo_indptr=torch.tensor([0, 1, 2, 3], device=device),
                 kv_indptr=torch.tensor([0, 5, 5, 8], device=device), sm_scale=SCALE)
    check(f"torch's tensors pass ({device})", grade(**given).passed)
    given["out"][0, 1, 1] += 0.25
    check("and fail", not grade(**given).passed)
except ImportError:
    print("SKIPPED torch: it is not installed")

sys.exit(failed > 0)
