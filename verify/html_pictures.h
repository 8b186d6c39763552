/* Pictures of a measure, as SVG in HTML figures. Colours are classes: l1 .. l5 from little to much, l6 beyond the bound, l7 no number at all. */
#ifndef MLA_HTML_PICTURES_H
#define MLA_HTML_PICTURES_H

#include "compare.h"

/*
 * The histogram of ulp errors, their density over |O| / A, the map of |e| / B over bands of rows and blocks of 32 columns, and the error
 * along the KV of one row, where there is a profile. All but the first need measure->pictures. Allocated; free(). NULL: out of memory.
 */
char *mla_html_pictures(const mla_measure *measure);

#endif
