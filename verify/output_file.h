/* Files the verifier writes: whole or not at all. "-" is standard output. */
#ifndef MLA_OUTPUT_FILE_H
#define MLA_OUTPUT_FILE_H

#include "../ref/mla.h"

/* Could `path` be written? Its folder must exist and be writable, and it must not be a folder itself. Creates nothing. */
mla_status mla_output_file_check(const char *path) MLA_CHECKED;
/* Writes to a temporary name in the same folder, syncs and renames. On failure `path` is as it was and nothing is left behind. */
mla_status mla_output_file_write(const char *path, const char *text, size_t bytes) MLA_CHECKED;

#endif
