/* Files the verifier writes: whole or not at all. "-" is standard output. */
#ifndef MLA_OUTPUT_FILE_H
#define MLA_OUTPUT_FILE_H

#include "../ref/mla.h"

/* Could `path` be written? Its folder must exist and be writable, and it must not be a folder itself. Creates nothing. */
mla_status mla_output_file_check(const char *path) MLA_CHECKED;
/* A folder to write into, made when it is missing (its parent is not). `name` is what errors call it, an option. */
mla_status mla_output_folder_make(const char *name, const char *path) MLA_CHECKED;
/* Writes to a temporary name in the same folder, syncs and renames. On failure `path` is as it was and nothing is left behind. */
mla_status mla_output_file_write(const char *path, const char *text, size_t bytes) MLA_CHECKED;

typedef struct mla_output_part {
    const void *data;
    size_t bytes;
} mla_output_part;

/* The same of several parts, one after another, to a regular file. */
mla_status mla_output_file_write_parts(const char *path, const mla_output_part *parts, int count) MLA_CHECKED;

#endif
