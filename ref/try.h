#ifndef MLA_TRY_H
#define MLA_TRY_H

#include "mla.h"

/* Returns the status of a call when it failed. */
#define TRY(call)                                                                                                                          \
    do {                                                                                                                                   \
        const mla_status status_ = (call);                                                                                                 \
        if (status_.code != MLA_OK)                                                                                                        \
            return status_;                                                                                                                \
    } while (0)

#endif
