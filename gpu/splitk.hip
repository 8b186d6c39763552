/* Flash decode with split KV: a block walks the plan items of one worker. One kernel a KV format, for the engine chosen by MLA_ENGINE_*. */
#include "splitk_args.h"

#if defined(MLA_ENGINE_MMA)
#include "engine_mma.h"
#else
#include "engine_cdna.h"
#endif
#include "splitk_walk.h"

MLA_DEVICE_BEGIN

template <typename Kv> MLA_DEVICE void mla_splitk(const mla_splitk_args &args) {
    using engine = mla_engine_device<Kv>;
    engine unit(mla_lds<typename engine::shared>());
    const int32_t last = args.worker_indptr[mla_block() + 1];
    for (int32_t i = args.worker_indptr[mla_block()]; i < last; i++)
        mla_walk<engine>(args, args.items[i], unit).run();
}

MLA_KERNEL(mla_splitk_bf16, mla_splitk_args, mla_engine_device<mla_kv_bf16>::THREADS) {
    mla_splitk<mla_kv_bf16>(args);
}

MLA_DEVICE_END
