#include "case.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static mla_status reserve(mla_case_list *list) {
    if (list->count < list->capacity)
        return mla_ok();
    const int capacity = list->capacity > 0 ? 2 * list->capacity : 16;
    mla_case *cases = realloc(list->cases, (size_t)capacity * sizeof *cases);
    if (cases == NULL)
        return mla_error(MLA_ENOMEM, "cannot allocate %zu bytes for cases", (size_t)capacity * sizeof *cases);
    list->cases = cases;
    list->capacity = capacity;
    return mla_ok();
}

mla_status mla_case_list_add(mla_case_list *list, const char *line) {
    mla_status status = reserve(list);
    if (status.code != MLA_OK)
        return status;
    mla_case *c = &list->cases[list->count];
    status = mla_case_parse(line, c);
    if (status.code == MLA_OK)
        list->count++;
    else
        mla_case_free(c);
    return status;
}

/* A comment reaches from # to the end of the line; lines of nothing else are passed over. */
static mla_status add_line(mla_case_list *list, char *line) {
    line[strcspn(line, "#\r\n")] = '\0';
    return line[strspn(line, " \t")] == '\0' ? mla_ok() : mla_case_list_add(list, line);
}

mla_status mla_case_list_read(mla_case_list *list, const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return mla_error(MLA_EIO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t size = 0;
    mla_status status = mla_ok();
    for (int number = 1; status.code == MLA_OK && getline(&line, &size, file) >= 0; number++) {
        status = add_line(list, line);
        if (status.code != MLA_OK)
            status = mla_error(status.code, "%.100s:%d: %s", path, number, status.message);
    }
    if (status.code == MLA_OK && ferror(file))
        status = mla_error(MLA_EIO, "%s: cannot read", path);
    free(line);
    fclose(file);
    return status;
}

void mla_case_list_free(mla_case_list *list) {
    for (int i = 0; i < list->count; i++)
        mla_case_free(&list->cases[i]);
    free(list->cases);
    *list = (mla_case_list){0};
}
