/* libFuzzer: any text as a case line and as a contract line. What is accepted prints, and parses back to the same print. */
#include "../verify/case.h"
#include "../verify/contract_line.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void expect_same_print(const char *printed) {
    mla_case again;
    if (mla_case_parse(printed, &again).code != MLA_OK)
        abort();
    char *second = mla_case_print(&again);
    if (!second || strcmp(printed, second) != 0)
        abort();
    free(second);
    mla_case_free(&again);
}

static void try_case(const char *line) {
    mla_case c;
    if (mla_case_parse(line, &c).code == MLA_OK) {
        char *printed = mla_case_print(&c);
        if (!printed)
            abort();
        expect_same_print(printed);
        free(printed);
    }
    mla_case_free(&c);
}

static void try_contract(const char *line) {
    mla_contract contract, again;
    if (mla_contract_parse(line, &contract).code != MLA_OK)
        return;
    char *printed = mla_contract_print(&contract);
    if (!printed || mla_contract_parse(printed, &again).code != MLA_OK)
        abort();
    char *second = mla_contract_print(&again);
    if (!second || strcmp(printed, second) != 0)
        abort();
    free(second);
    free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char *line = malloc(size + 1);
    if (!line)
        return 0;
    memcpy(line, bytes, size);
    line[size] = '\0';
    try_case(line);
    try_contract(line);
    free(line);
    return 0;
}
