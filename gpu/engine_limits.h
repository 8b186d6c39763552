/* The figures of each engine that host and device share: engine.c tabulates them, the device code is built from them. C and C++. */
#ifndef MLA_ENGINE_LIMITS_H
#define MLA_ENGINE_LIMITS_H

#define MLA_CDNA3_THREADS 256
#define MLA_CDNA3_ROWS 16
#define MLA_CDNA3_TOKENS 32
#define MLA_CDNA3_LDS_BYTES 41088 /* static, of the 64 KiB a workgroup may have */

#define MLA_CDNA4_THREADS 512
#define MLA_CDNA4_ROWS 16
#define MLA_CDNA4_TOKENS 64
#define MLA_CDNA4_LDS_BYTES 156160 /* static, of 160 KiB */

#define MLA_CDNA3TALL_THREADS 512
#define MLA_CDNA3TALL_ROWS 64
#define MLA_CDNA3TALL_TOKENS 32
#define MLA_CDNA3TALL_LDS_BYTES 53376 /* static */

#define MLA_CDNA4TALL_THREADS 512
#define MLA_CDNA4TALL_ROWS 64
#define MLA_CDNA4TALL_TOKENS 32
#define MLA_CDNA4TALL_LDS_BYTES 90368 /* static */

#define MLA_MMA_THREADS 128
#define MLA_MMA_ROWS 16
#define MLA_MMA_TOKENS 32
#define MLA_MMA_LDS_BYTES 115712 /* dynamic: half of what an SM of sm_90 has, so that two blocks share one */

#define MLA_HOPPER_THREADS 256
#define MLA_HOPPER_ROWS 64
#define MLA_HOPPER_TOKENS 64
#define MLA_HOPPER_LDS_BYTES 231424 /* dynamic, of 227 KiB */

#define MLA_HOPPER16_THREADS 128
#define MLA_HOPPER16_ROWS 16
#define MLA_HOPPER16_TOKENS 64
#define MLA_HOPPER16_MAX_SLACK 8
#define MLA_HOPPER16_LDS_BYTES 86784 /* dynamic: two blocks share an SM */

#endif
