/*
 * What the verifier and its workers say to each other over a socket: frames, of the same program on both ends. A kernel may have scribbled over the
 * one that speaks, so that the other believes nothing it has not checked.
 */
#ifndef MLA_WIRE_H
#define MLA_WIRE_H

#include "run.h"

typedef enum mla_frame_kind {
    MLA_FRAME_OPENED = 1, /* worker: mla_status of opening its kernel */
    MLA_FRAME_CASE,  /* verifier: a case's line, the folder for its outputs, "failing" or nothing, "pictures" or nothing: four strings */
    MLA_FRAME_ALIVE, /* worker: double, the share of the case that is done */
    MLA_FRAME_RESULT /* worker: a packed mla_result */
} mla_frame_kind;

typedef struct mla_frame {
    mla_frame_kind kind;
    size_t bytes;
    void *data; /* owned, and a zero byte behind it */
} mla_frame;

typedef enum mla_reception {
    MLA_RECEIVED,
    MLA_HUNG_UP,        /* the other end is closed */
    MLA_UNINTELLIGIBLE, /* no frame, or one of more than `most` bytes */
    MLA_SILENT          /* nothing came in time */
} mla_reception;

/* Returns false when the other end is closed. */
bool mla_frame_send(int socket, mla_frame_kind kind, const void *data, size_t bytes);
/* Waits `seconds` for the whole frame; 0: for ever. free() frame->data, NULL unless received. */
mla_reception mla_frame_receive(int socket, size_t most, double seconds, mla_frame *frame);

/* Bytes of a packed result of a case of `batch` sequences, at most; `pictures`: its measure may have them. */
size_t mla_result_packed_bytes(int32_t batch, bool pictures);
/* What a grading found: verdict, integrity, measure. Allocated; free(). NULL: out of memory. */
void *mla_result_pack(const mla_result *result, size_t *bytes);
/* Into a result whose test, kernel and case_line are set. False: malformed or out of memory, and the result is as it was. */
bool mla_result_unpack(const void *data, size_t bytes, mla_result *result);

#endif
