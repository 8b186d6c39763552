/* How long the machine kept this process waiting. */
#ifndef MLA_PROCESSOR_WAIT_H
#define MLA_PROCESSOR_WAIT_H

/* Seconds that this process's living threads, together, were ready to run and had no processor, since they began. NaN where the system does not say. */
double mla_processor_wait(void);

#endif
