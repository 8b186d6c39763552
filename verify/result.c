#include <stdlib.h>

#include "run.h"

void mla_result_free(mla_result *result) {
    free(result->case_line);
    free(result->smallest);
    free(result->kept);
    mla_measure_free(&result->measure);
    *result = (mla_result){0};
}
