#include "contract_preset.h"

#include <stddef.h>
#include <string.h>

/* Where a source leaves a choice open, the looser one is declared: tiles as small as any autotuned one, flushed subnormals. */
const mla_contract_preset mla_contract_presets[] = {
    {"flashmla", "acc_rounding=rz mma_k=16 combine=lse ftz=1 tile=64 max_splits=160",
     "FlashMLA's dense decode on Hopper: wgmma, P in bf16, partials normalised in fp32, merged by lse in base 2"},
    {"aiter", "acc_rounding=rz mma_k=8 combine=lse ftz=1 tile=16 max_splits=304",
     "aiter's MLA decode: assembly kernels that leave fp32 partials and lse, merged by a second kernel; P's rounding is not published: "
     "taken as rne"},
    {"triton-splitk", "acc_rounding=rz mma_k=16 combine=lse ftz=1 tile=16 max_splits=32",
     "the grouped decode kernels in Triton of SGLang and vLLM: P in v's type, partials normalised in fp32, merged by lse"},
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
