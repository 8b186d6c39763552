/* What this process had of the machine's processors, and how long it waited for them. */
#ifndef MLA_PROCESSOR_TIME_H
#define MLA_PROCESSOR_TIME_H

/* Seconds that this process's threads, together, ran. */
double mla_processor_used(void);
/* Seconds that its living threads, together, were ready to run and had no processor, since they began. NaN where the system does not say. */
double mla_processor_waited(void);

#endif
