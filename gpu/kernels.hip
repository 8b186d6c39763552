/* Every kernel of one machine, as one translation unit: one code object each. */
#include "splitk.hip"
#include "combine.hip"
