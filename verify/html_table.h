/* A page with a table of cases, which its program filters and sorts: what the pages of run, check and bench share. */
#ifndef MLA_HTML_TABLE_H
#define MLA_HTML_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;

/* A number of a result, by its name in the JSON. */
typedef struct mla_html_column {
    const char *title, *help, *key, *format; /* the format of one double */
} mla_html_column;

typedef struct mla_html_table {
    const struct cJSON *cases;      /* an array: "status", "case", "kernel", "reason", "text", "golden" and the columns' keys */
    const mla_html_column *columns; /* [num_columns] */
    int num_columns;
    void (*detail)(FILE *html, const struct cJSON *result, int32_t place,
                   const void *context); /* below the command that repeats it; may be NULL */
    const void *context;
} mla_html_table;

/* All up to the body, style included; and from there to the end, program included. */
void mla_html_begin(FILE *html);
void mla_html_end(FILE *html);
/* The filters and the table. False: out of memory. */
bool mla_html_put_table(FILE *html, const mla_html_table *table);
/* Closes the stream of open_memstream; its text, or NULL when anything failed: `good` is whether all was put. */
char *mla_html_finish(FILE *html, char **text, bool good);

#endif
