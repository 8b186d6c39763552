"""Grades tensors that an MLA decode kernel has written, with libmlaverify.so and nothing else but Python.

    from grade_tensors import grade

    grade(out, lse, q=q, kv=kv, qo_indptr=qo_indptr, kv_indptr=kv_indptr, sm_scale=1 / 24).check()

Tensors are torch's (on any device: they are copied to the host), numpy's, or anything with the buffer protocol. Types that numpy and buffers lack are
named: q_format="bf16" for 16-bit integers that hold bf16. Shapes are those of ref/mla.h; out [queries, heads, 512], lse [queries, heads].
"""
import ctypes
import json
import os

FORMATS = ["bf16", "fp16", "fp32", "fp8", "fp8fnuz"]
KV_FORMATS = ["bf16", "fp16", "fp8", "fp8fnuz", "fp8b656", "mxfp4"]
KV_TOKEN_BYTES = [1152, 1152, 576, 576, 656, 288]
CONTIGUOUS, PAGED, TOKEN_LIST, SPARSE = range(4)
TORCH_FORMATS = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32", "torch.float8_e4m3fn": "fp8",
                 "torch.float8_e4m3fnuz": "fp8fnuz"}
BUFFER_FORMATS = {"f": "fp32", "e": "fp16"}
ABI = 1


class Problem(ctypes.Structure):
    """mla_problem"""
    _fields_ = [("batch", ctypes.c_int32), ("heads", ctypes.c_int32), ("q_format", ctypes.c_int), ("q_scale", ctypes.c_float), ("q", ctypes.c_void_p),
                ("total_q", ctypes.c_int64), ("qo_indptr", ctypes.c_void_p), ("kv_format", ctypes.c_int), ("kv_scale", ctypes.c_float),
                ("kv", ctypes.c_void_p), ("kv_block_scales", ctypes.c_void_p), ("kv_scale_stride", ctypes.c_int64), ("total_kv", ctypes.c_int64),
                ("kv_indptr", ctypes.c_void_p), ("paging", ctypes.c_int), ("page_size", ctypes.c_int32), ("block_table", ctypes.c_void_p),
                ("block_table_stride", ctypes.c_int64), ("kv_indices", ctypes.c_void_p), ("topk_indices", ctypes.c_void_p), ("topk", ctypes.c_int32),
                ("sm_scale", ctypes.c_float), ("causal", ctypes.c_bool), ("window", ctypes.c_int32), ("softcap", ctypes.c_float),
                ("sink", ctypes.c_void_p), ("lse_base", ctypes.c_int), ("lse_empty_positive", ctypes.c_bool), ("out_format", ctypes.c_int),
                ("split_policy", ctypes.c_int), ("split_arg", ctypes.c_int32)]


class Output(ctypes.Structure):
    """mla_output"""
    _fields_ = [("out", ctypes.c_void_p), ("lse", ctypes.c_void_p)]


class Status(ctypes.Structure):
    """mla_status"""
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 252)]


class CGrade(ctypes.Structure):
    """mlaverify_grade"""
    _fields_ = [("passed", ctypes.c_int32), ("numbers", ctypes.c_double * 3), ("counts", ctypes.c_int64 * 4), ("worst", ctypes.c_int32 * 4),
                ("worst_values", ctypes.c_double * 3), ("text", ctypes.c_char_p), ("json", ctypes.c_char_p)]


class Grade:
    """passed, text (the report), and measures: what "cases" of mla-verify run --json has."""

    def __init__(self, found):
        self.passed, self.text, self.measures = bool(found.passed), found.text.decode(), json.loads(found.json.decode())

    def check(self):
        if not self.passed:
            raise AssertionError("\n" + self.text)


class _Tensor:
    """A tensor in host memory: where it is, its size, and what its type says. Keeps the memory alive."""

    def __init__(self, tensor, integers=False):
        if hasattr(tensor, "data_ptr"):
            self.kept = (tensor.int() if integers else tensor).detach().cpu().contiguous()
            self.address, self.shape, self.format = self.kept.data_ptr(), tuple(self.kept.shape), TORCH_FORMATS.get(str(self.kept.dtype))
            self.bytes, self.element = self.kept.numel() * self.kept.element_size(), self.kept.element_size()
            return
        view = memoryview(tensor)
        if not view.c_contiguous:
            raise ValueError("a tensor is not contiguous")
        if integers and view.format != "i":
            raise ValueError("indices must be 32-bit integers")
        data = bytearray(view.tobytes() or b"\0") if view.readonly or not view.nbytes else view
        self.kept = ctypes.c_char.from_buffer(data)
        self.address, self.shape, self.format = ctypes.addressof(self.kept), view.shape, BUFFER_FORMATS.get(view.format)
        self.bytes, self.element = view.nbytes, view.itemsize


def _library(path):
    here = os.path.dirname(os.path.abspath(__file__))
    tried = [path, os.environ.get("MLAVERIFY"), here + "/../build/libmlaverify.so", here + "/../../lib/libmlaverify.so", "libmlaverify.so"]
    name = next(p for p in tried if p and (os.path.exists(p) or "/" not in p))
    library = ctypes.CDLL(name)
    library.mlaverify_problem_bytes.restype = ctypes.c_size_t
    if library.mlaverify_abi() != ABI or library.mlaverify_problem_bytes() != ctypes.sizeof(Problem):
        raise RuntimeError(f"{name} is of another version than this file")
    library.mlaverify_grade_output.restype = Status
    library.mlaverify_grade_output.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
    library.mlaverify_grade_free.argtypes = [ctypes.c_void_p]
    return library


def _index(name, value, known):
    if value not in known:
        raise ValueError(f"{name} is {value}: name one of {', '.join(known)}")
    return known.index(value)


def _rows(name, tensor, row_bytes):
    if row_bytes <= 0 or tensor.bytes % row_bytes:
        raise ValueError(f"{name} has {tensor.bytes} bytes: no multiple of {row_bytes}")
    return tensor.bytes // row_bytes


def grade(out, lse=None, *, q, kv, qo_indptr, kv_indptr, sm_scale, heads=None, q_format=None, kv_format=None, out_format=None, q_scale=1.0, kv_scale=1.0,
          kv_block_scales=None, block_table=None, page_size=0, kv_indices=None, topk_indices=None, causal=False, window=0, softcap=0.0, sink=None,
          lse_base="e", lse_empty_positive=False, contract="", library=None):
    """Grades out and lse. ValueError: what they were made from is malformed. `heads` is needed where q is no tensor of three dimensions."""
    index_tensors = dict(qo_indptr=qo_indptr, kv_indptr=kv_indptr, block_table=block_table, kv_indices=kv_indices, topk_indices=topk_indices)
    tensors = {name: _Tensor(t, integers=True) for name, t in index_tensors.items() if t is not None}
    value_tensors = dict(out=out, lse=lse, q=q, kv=kv, kv_block_scales=kv_block_scales, sink=sink)
    tensors.update({name: _Tensor(t) for name, t in value_tensors.items() if t is not None})
    p, output = Problem(), Output()
    for name in tensors:
        setattr(output if name in ("out", "lse") else p, name, tensors[name].address)

    t_q, t_kv, t_out = tensors["q"], tensors["kv"], tensors["out"]
    p.q_format = _index("q_format", q_format or t_q.format, FORMATS)
    p.kv_format = _index("kv_format", kv_format or t_kv.format, KV_FORMATS)
    p.out_format = _index("out_format", out_format or t_out.format, FORMATS)
    p.heads = heads or t_q.shape[1]
    p.total_q = _rows("q", t_q, p.heads * 576 * t_q.element)
    p.total_kv = _rows("kv", t_kv, KV_TOKEN_BYTES[p.kv_format])
    p.batch = tensors["qo_indptr"].bytes // 4 - 1
    if p.batch < 1:
        raise ValueError("qo_indptr has no sequence")
    expected = {"out": p.total_q * p.heads * 512 * t_out.element, "lse": p.total_q * p.heads * 4, "kv_indptr": 4 * (p.batch + 1), "sink": 4 * p.heads}
    for name, size in expected.items():
        if name in tensors and tensors[name].bytes != size:
            raise ValueError(f"{name} has {tensors[name].bytes} bytes instead of {size}")

    listed = 4 * ctypes.c_int32.from_address(p.kv_indptr + 4 * p.batch).value
    if kv_indices is not None and tensors["kv_indices"].bytes < listed:
        raise ValueError(f"kv_indices has {tensors['kv_indices'].bytes} bytes instead of {listed}")

    if block_table is not None:
        p.paging, p.page_size, p.block_table_stride = PAGED, page_size, _rows("block_table", tensors["block_table"], 4 * p.batch)
    elif kv_indices is not None:
        p.paging = TOKEN_LIST
    elif topk_indices is not None:
        p.paging, p.topk = SPARSE, _rows("topk_indices", tensors["topk_indices"], 4 * p.total_q)
    if kv_block_scales is not None:
        p.kv_scale_stride = _rows("kv_block_scales", tensors["kv_block_scales"], p.total_kv)
    p.q_scale, p.kv_scale, p.sm_scale, p.causal, p.window, p.softcap = q_scale, kv_scale, sm_scale, causal, window, softcap
    p.lse_base, p.lse_empty_positive = _index("lse_base", lse_base, ["e", "2"]), lse_empty_positive

    c, found = _library(library), CGrade()
    status = c.mlaverify_grade_output(ctypes.byref(p), ctypes.byref(output), 0, contract.encode(), ctypes.byref(found))
    try:
        if status.code:
            raise ValueError(status.message.decode())
        return Grade(found)
    finally:
        c.mlaverify_grade_free(ctypes.byref(found))
