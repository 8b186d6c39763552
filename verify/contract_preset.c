#include "contract_preset.h"

#include <stddef.h>
#include <string.h>

/*
 * Read off the public sources. Where one leaves a choice open, the looser is declared: the smallest tile that any autotuning picks, matrix units that
 * cut toward zero, approximate exp2 that flushes subnormals. combine=lse covers kernels that divide by the sum of the weights as well.
 */
const mla_contract_preset mla_contract_presets[] = {
    {"flashmla", "acc_rounding=rz mma_k=16 combine=lse ftz=1 tile=64 max_splits=160",
     "FlashMLA's dense decode on Hopper (splitkv_mla, combine): P to bf16 by rne after the row sum, partials divided by l in fp32, merged "
     "by lse"},
    {"aiter", "acc_rounding=rz mma_k=8 combine=lse ftz=1 tile=16 max_splits=304",
     "aiter's MLA decode (mla.py): assembly leaves fp32 partials and their lse, a second kernel merges; P's rounding is not public: taken "
     "as rne"},
    {"triton-splitk", "acc_rounding=rz mma_k=16 combine=lse ftz=1 tile=16 max_splits=32",
     "SGLang's and vLLM's grouped decode in Triton (decode_attention.py): P to v's type after the row sum (fp8 KV: add p=fp8), partials "
     "divided by "
     "their sum in fp32, merged by lse"},
    {"torch-bf16", "acc_rounding=rz mma_k=16 scores=bf16 n_scores=2 max=lazy ftz=1 tile=2097152 max_splits=32",
     "softmax(q k^T * scale) v in bf16 tensors: scores leave the product and the scaling in bf16, softmax in fp32, normalised P in bf16"},
    {NULL, NULL, NULL},
};

const char *mla_contract_preset_line(const char *name, int length) {
    for (const mla_contract_preset *preset = mla_contract_presets; preset->name; preset++)
        if (strlen(preset->name) == (size_t)length && strncmp(preset->name, name, (size_t)length) == 0)
            return preset->line;
    return NULL;
}
