/* Flash decode with split KV: a block walks the plan items of one worker. One kernel a KV format, for the engine chosen by MLA_ENGINE_*. */
#include "splitk_args.h"

#if defined(MLA_ENGINE_HOPPER16)
#include "engine_hopper16.h"
#elif defined(MLA_ENGINE_HOPPER)
#include "engine_hopper.h"
#elif defined(MLA_ENGINE_MMA)
#include "engine_mma.h"
#else
#include "engine_cdna.h"
#endif
#include "splitk_walk.h"

MLA_DEVICE_BEGIN

template <typename Kv> MLA_DEVICE void mla_splitk(const mla_splitk_args &args) {
    using engine = mla_engine_device<Kv>;
    engine unit(mla_lds<typename engine::shared>());
    mla_let_next_launch_begin();
    const int32_t last = args.worker_indptr[mla_block() + 1];
    for (int32_t i = args.worker_indptr[mla_block()]; i < last; i++)
        mla_walk<engine>(args, args.items[i], unit).run();
}

#define MLA_SPLITK_KERNEL_AS(name, kv)                                                                                                     \
    MLA_KERNEL(name, mla_splitk_args, mla_engine_device<kv>::THREADS) {                                                                    \
        mla_splitk<kv>(args);                                                                                                              \
    }
/* An AMD device has two engines: their kernels differ in name, and the others come with one of them. */
#if defined(MLA_ENGINE_CDNA3TALL) || defined(MLA_ENGINE_CDNA4TALL)
#define MLA_AMD_TALL
#define MLA_SPLITK_KERNEL(kv) MLA_SPLITK_KERNEL_AS(mla_splitk_tall_##kv, mla_kv_##kv)
#else
#define MLA_SPLITK_KERNEL(kv) MLA_SPLITK_KERNEL_AS(mla_splitk_##kv, mla_kv_##kv)
#endif

#if !defined(MLA_ENGINE_HOPPER16)
MLA_SPLITK_KERNEL(bf16)
MLA_SPLITK_KERNEL(fp16)
#endif
#if !defined(MLA_ENGINE_HOPPER)
MLA_SPLITK_KERNEL(fp8)
MLA_SPLITK_KERNEL(fp8fnuz)
MLA_SPLITK_KERNEL(fp8b656)
MLA_SPLITK_KERNEL(mxfp4)
#endif

MLA_DEVICE_END
