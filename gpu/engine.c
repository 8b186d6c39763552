/* The engines' figures for the host. */
#include "engine.h"

#include "engine_limits.h"

#include <string.h>

static const mla_engine engines[] = {
    {
        .name = "cdna3",
        .kernels = "mla_splitk",
        .threads = MLA_CDNA3_THREADS,
        .row_tile = MLA_CDNA3_ROWS,
        .kv_tile = MLA_CDNA3_TOKENS,
        .lds_bytes = MLA_CDNA3_LDS_BYTES,
        .blocks_a_unit = 1,
        .wave = 64,
        .acc_rounding = MLA_RZ, /* products in groups of eight, aligned and cut before they are added */
        .mma_k = 8,
    },
    {
        .name = "cdna4",
        .kernels = "mla_splitk",
        .threads = MLA_CDNA4_THREADS,
        .row_tile = MLA_CDNA4_ROWS,
        .kv_tile = MLA_CDNA4_TOKENS,
        .lds_bytes = MLA_CDNA4_LDS_BYTES,
        .blocks_a_unit = 1,
        .wave = 64,
        .acc_rounding = MLA_RZ, /* no model is published: as its predecessor */
        .mma_k = 8,
    },
    {
        .name = "cdna3tall",
        .kernels = "mla_splitk_tall",
        .threads = MLA_CDNA3TALL_THREADS,
        .row_tile = MLA_CDNA3TALL_ROWS,
        .kv_tile = MLA_CDNA3TALL_TOKENS,
        .lds_bytes = MLA_CDNA3TALL_LDS_BYTES,
        .blocks_a_unit = 1,
        .wave = 64,
        .acc_rounding = MLA_RZ,
        .mma_k = 8,
        .min_rows = MLA_CDNA3_ROWS + 1,
    },
    {
        .name = "cdna4tall",
        .kernels = "mla_splitk_tall",
        .threads = MLA_CDNA4TALL_THREADS,
        .row_tile = MLA_CDNA4TALL_ROWS,
        .kv_tile = MLA_CDNA4TALL_TOKENS,
        .lds_bytes = MLA_CDNA4TALL_LDS_BYTES,
        .blocks_a_unit = 1,
        .wave = 64,
        .acc_rounding = MLA_RZ,
        .mma_k = 8,
        .min_rows = MLA_CDNA4_ROWS + 1,
    },
    {
        .name = "mma",
        .kernels = "mla_splitk",
        .threads = MLA_MMA_THREADS,
        .row_tile = MLA_MMA_ROWS,
        .kv_tile = MLA_MMA_TOKENS,
        .lds_bytes = MLA_MMA_LDS_BYTES,
        .blocks_a_unit = 2,
        .wave = 32,
        .acc_rounding = MLA_RZ, /* tensor cores truncate */
        .mma_k = 8,             /* sm_80's step; later ones fuse 16 */
    },
    {
        .name = "hopper",
        .kernels = "mla_splitk",
        .threads = MLA_HOPPER_THREADS,
        .row_tile = MLA_HOPPER_ROWS,
        .kv_tile = MLA_HOPPER_TOKENS,
        .lds_bytes = MLA_HOPPER_LDS_BYTES,
        .blocks_a_unit = 1,
        .wave = 32,
        .acc_rounding = MLA_RZ,
        .mma_k = 16,
        .kv = MLA_ENGINE_DIRECT_KV,
        .min_rows = MLA_MMA_ROWS + 1,
    },
    {
        .name = "hopper16",
        .kernels = "mla_splitk",
        .threads = MLA_HOPPER16_THREADS,
        .row_tile = MLA_HOPPER16_ROWS,
        .kv_tile = MLA_HOPPER16_TOKENS,
        .lds_bytes = MLA_HOPPER16_LDS_BYTES,
        .blocks_a_unit = 2,
        .wave = 32,
        .acc_rounding = MLA_RZ,
        .mma_k = 16,
        .max_slack = MLA_HOPPER16_MAX_SLACK,
        .kv = MLA_ENGINE_CONVERTED_KV,
    },
};

const mla_engine *mla_engine_find(const char *name) {
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        if (strcmp(engines[i].name, name) == 0)
            return &engines[i];
    return NULL;
}

mla_plan_options mla_engine_plan_options(const mla_engine *engine, const mla_device *device) {
    return (mla_plan_options){
        .row_tile = engine->row_tile, .kv_tile = engine->kv_tile, .resident_blocks = device->compute_units * engine->blocks_a_unit};
}
