/* Drivers that may or may not be there: libraries opened at run time, their functions gathered in a table. */
#ifndef MLA_LIBRARY_H
#define MLA_LIBRARY_H

#include "../ref/mla.h"

/* One function: its exported name, and where its pointer goes in the table. */
typedef struct mla_symbol {
    const char *name;
    size_t offset;
} mla_symbol;

/* Opens the first of `names` (ended by NULL) that can be opened and fills `table`. MLA_EDEVICE "no AMD driver: libamdhip64.so not found",
   where `what` is "AMD" and names[0] the library. Close with mla_library_close. */
mla_status mla_library_open(const char *what, const char *const *names, const mla_symbol *symbols, size_t count, void *table,
                            void **library) MLA_CHECKED;
/* One function, or NULL. */
void *mla_library_find(void *library, const char *name);
/* NULL is allowed. */
void mla_library_close(void *library);

#endif
