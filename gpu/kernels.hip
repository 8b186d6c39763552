/* Every kernel of one machine, as one translation unit: one code object each. */
#include "splitk.hip"
#include "combine.hip"
#if !defined(MLA_HOST_EXEC) && !defined(MLA_ENGINE_HOPPER) && !defined(MLA_ENGINE_HOPPER16) &&                                             \
    !defined(MLA_AMD_TALL) /* once a device; the host compiles it once, for all engines */
#include "bmm.hip"
#endif
