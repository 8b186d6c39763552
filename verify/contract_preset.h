/* Contracts of kernels in the field, by name. */
#ifndef MLA_CONTRACT_PRESET_H
#define MLA_CONTRACT_PRESET_H

typedef struct mla_contract_preset {
    const char *name;
    const char *line;   /* as mla_contract_parse reads it, without a preset */
    const char *source; /* what it was read off */
} mla_contract_preset;

/* Ends with a name that is NULL. */
extern const mla_contract_preset mla_contract_presets[];
/* The preset's line, or NULL when there is none of that name (its first `length` characters). */
const char *mla_contract_preset_line(const char *name, int length);

#endif
