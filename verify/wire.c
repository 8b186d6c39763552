#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- frames ------------------------------------------------------------------------------------------------------------------------- */

#define MAGIC 0x616C6D31u

typedef struct frame_head {
    uint32_t magic, kind;
    uint64_t bytes;
} frame_head;

static bool send_all(int socket, const void *data, size_t bytes) {
    const char *from = data;
    while (bytes > 0) {
        const ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        from += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

bool mla_frame_send(int socket, mla_frame_kind kind, const void *data, size_t bytes) {
    const frame_head head = {MAGIC, (uint32_t)kind, bytes};
    return send_all(socket, &head, sizeof head) && send_all(socket, data, bytes);
}

/* False when the deadline passes first; 0 is none. */
static bool wait_readable(int socket, double deadline) {
    for (;;) {
        struct pollfd poller = {.fd = socket, .events = POLLIN};
        const double left = deadline - mla_seconds();
        if (deadline > 0 && left <= 0)
            return false;
        const int ready = poll(&poller, 1, deadline == 0 ? -1 : left < 1e6 ? (int)(1000 * left) + 1 : 1000000000);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true;
    }
}

static mla_reception receive_all(int socket, void *data, size_t bytes, double deadline) {
    char *to = data;
    while (bytes > 0) {
        if (!wait_readable(socket, deadline))
            return MLA_SILENT;
        const ssize_t got = recv(socket, to, bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return MLA_HUNG_UP;
        to += got;
        bytes -= (size_t)got;
    }
    return MLA_RECEIVED;
}

mla_reception mla_frame_receive(int socket, size_t most, double seconds, mla_frame *frame) {
    const double deadline = seconds > 0 ? mla_seconds() + seconds : 0;
    frame_head head;
    *frame = (mla_frame){.bytes = 0};
    mla_reception reception = receive_all(socket, &head, sizeof head, deadline);
    if (reception != MLA_RECEIVED)
        return reception;
    if (head.magic != MAGIC || head.bytes > most)
        return MLA_UNINTELLIGIBLE;
    char *data = calloc(1, (size_t)head.bytes + 1);
    reception = data ? receive_all(socket, data, (size_t)head.bytes, deadline) : MLA_UNINTELLIGIBLE;
    if (reception != MLA_RECEIVED)
        free(data);
    else
        *frame = (mla_frame){(mla_frame_kind)head.kind, (size_t)head.bytes, data};
    return reception;
}

/* ---- results ------------------------------------------------------------------------------------------------------------------------- */

/* Followed, where measured, by the measure's sequences, and then by its pictures, if any. */
typedef struct packed_result {
    mla_verdict verdict;
    mla_integrity integrity;
    mla_measure measure;
    mla_diagnosis diagnosis;
    uint8_t measured, pictured;
} packed_result;

static size_t sequence_bytes(int32_t batch) {
    return ((size_t)batch + 1) * sizeof(mla_counts);
}

size_t mla_result_packed_bytes(int32_t batch, bool pictures) {
    return sizeof(packed_result) + sequence_bytes(batch) + (pictures ? sizeof(mla_pictures) : 0);
}

void *mla_result_pack(const mla_result *result, size_t *bytes) {
    const mla_measure *m = &result->measure;
    *bytes = result->measured ? mla_result_packed_bytes(m->batch, m->pictures != NULL) : sizeof(packed_result);
    packed_result *packed = calloc(1, *bytes);
    if (!packed)
        return NULL;
    packed->verdict = result->verdict;
    packed->integrity = result->integrity;
    packed->diagnosis = result->diagnosis;
    packed->measured = result->measured;
    if (result->measured) {
        char *arrays = (char *)(packed + 1);
        packed->measure = *m;
        packed->measure.sequences = NULL;
        packed->measure.pictures = NULL;
        packed->pictured = m->pictures != NULL;
        memcpy(arrays, m->sequences, sequence_bytes(m->batch));
        if (m->pictures)
            memcpy(arrays + sequence_bytes(m->batch), m->pictures, sizeof *m->pictures);
    }
    return packed;
}

static bool is_text(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

static bool is_well_formed(const packed_result *p, size_t bytes, int32_t batch) {
    const size_t expected = p->measured ? mla_result_packed_bytes(batch, p->pictured) : sizeof *p;
    return p->measured <= 1 && p->pictured <= 1 && bytes == expected && (!p->measured || p->measure.batch == batch) &&
           (unsigned)p->diagnosis.cause < MLA_CAUSES && is_text(p->diagnosis.where, sizeof p->diagnosis.where) &&
           is_text(p->diagnosis.text, sizeof p->diagnosis.text) && (unsigned)p->verdict.status < MLA_VERDICT_STATUSES &&
           is_text(p->verdict.reason, sizeof p->verdict.reason) && is_text(p->integrity.guard_touched, MLA_BUFFER_NAME) &&
           is_text(p->integrity.input_changed, MLA_BUFFER_NAME);
}

/* Bands are what rows are shared out to: a picture of others would be drawn outside itself. */
static bool is_drawable(const mla_pictures *p) {
    return p->bands >= 0 && p->bands <= MLA_BANDS && p->rows_per_band > 0 && (uint32_t)p->profile.blocks <= MLA_KV_BLOCKS &&
           (uint32_t)p->profile.tokens <= MLA_KV_TOKENS;
}

static bool unpack_arrays(const char *arrays, packed_result *packed) {
    mla_measure *m = &packed->measure;
    const size_t bytes = sequence_bytes(m->batch);
    m->sequences = malloc(bytes);
    m->pictures = packed->pictured ? malloc(sizeof *m->pictures) : NULL;
    if (m->sequences)
        memcpy(m->sequences, arrays, bytes);
    if (m->pictures)
        memcpy(m->pictures, arrays + bytes, sizeof *m->pictures);
    if (m->sequences && (!packed->pictured || (m->pictures && is_drawable(m->pictures))))
        return true;
    mla_measure_free(m);
    return false;
}

bool mla_result_unpack(const void *data, size_t bytes, mla_result *result) {
    packed_result packed;
    if (bytes < sizeof packed)
        return false;
    memcpy(&packed, data, sizeof packed);
    packed.measure.sequences = NULL;
    packed.measure.pictures = NULL;
    if (!is_well_formed(&packed, bytes, result->test->batch))
        return false;
    if (packed.measured && !unpack_arrays((const char *)data + sizeof packed, &packed))
        return false;
    result->verdict = packed.verdict;
    result->integrity = packed.integrity;
    result->measure = packed.measure;
    result->diagnosis = packed.diagnosis;
    result->measured = packed.measured;
    return true;
}
