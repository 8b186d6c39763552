/*
 * LDS bank conflicts of AMD's engines: their own address functions for all lanes of every access to a KV tile and to the scores, against the machines' phases. In a
 * phase some lanes of a wave are served at once, unless two want different words of one bank.
 *
 * gfx942 has 32 banks of 4 bytes; phases of ds_write_b128 and ds_read_b128 as in rocm.docs.amd.com, Composable Kernel, "Understanding AMD GPU LDS and Bank Conflicts", and
 * rocm.blogs.amd.com, "Avoiding LDS Bank Conflicts on AMD GPUs Using CK-Tile". gfx950 has 64; ds_read_b64 and ds_read_b128 as measured by HipKittens (arXiv:2511.08083,
 * analysis/paper_experiments/phases); stores are taken as on gfx942.
 */
#include <criterion/criterion.h>

#define MLA_HOST_EXEC
#define MLA_ENGINE_CDNA3
#include "../gpu/engine_cdna.h"

#include <functional>
#include <map>
#include <numeric>
#include <vector>

namespace {

typedef std::vector<int> lanes;

struct machine {
    int banks;
    std::vector<lanes> read16, read8;
};

lanes range(int first, int count) {
    lanes some(static_cast<size_t>(count));
    std::iota(some.begin(), some.end(), first);
    return some;
}

lanes join(std::initializer_list<lanes> parts) {
    lanes all;
    for (const lanes &part : parts)
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

/* The phases of half a wave, and the same of the other half. */
std::vector<lanes> of_both_halves(std::vector<lanes> phases) {
    for (size_t i = 0, count = phases.size(); i < count; ++i) {
        lanes other = phases[i];
        for (int &lane : other)
            lane += 32;
        phases.push_back(other);
    }
    return phases;
}

std::vector<lanes> runs(int count) {
    std::vector<lanes> phases;
    for (int first = 0; first < 64; first += count)
        phases.push_back(range(first, count));
    return phases;
}

const machine gfx942 = {32,
                        of_both_halves({join({range(0, 4), range(20, 4)}), join({range(4, 4), range(16, 4)}),
                                        join({range(8, 4), range(28, 4)}), join({range(12, 4), range(24, 4)})}),
                        {}};
const machine gfx950 = {
    64, of_both_halves({join({range(0, 4), range(12, 4), range(20, 8)}), join({range(4, 8), range(16, 4), range(28, 4)})}), runs(32)};
const std::vector<lanes> write16 = runs(8);
constexpr int write_banks = 32;

/* Words of the busiest bank over the phases: 1 is free of conflicts. A lane without an access has offset -1. */
int worst(const std::vector<lanes> &phases, int banks, int bytes, const std::vector<long> &offsets) {
    size_t most = 0;
    for (const lanes &phase : phases) {
        std::map<long, std::map<long, bool>> words;
        for (int lane : phase)
            for (long word = 0; word < bytes / 4 && offsets[static_cast<size_t>(lane)] >= 0; ++word) {
                const long at = offsets[static_cast<size_t>(lane)] / 4 + word;
                words[at % banks][at] = true;
            }
        for (const auto &bank : words)
            most = std::max(most, bank.second.size());
    }
    return static_cast<int>(most);
}

Test(banks, are_counted) {
    std::vector<long> rows(64), chunks(64);
    for (int lane = 0; lane < 64; ++lane) {
        rows[static_cast<size_t>(lane)] = lane * 128;
        chunks[static_cast<size_t>(lane)] = lane * 16;
    }
    cr_expect_eq(worst(runs(8), 32, 16, chunks), 1);
    cr_expect_eq(worst(runs(8), 32, 16, rows), 8, "eight rows begin in one bank");
    cr_expect_eq(worst(runs(8), 64, 16, rows), 4, "of 64 banks every other row does");
    cr_expect_eq(worst(gfx942.read16, 32, 16, std::vector<long>(64, 0)), 1, "one word for all is no conflict");
}

/* ---- reads ---- */

template <typename Engine> struct reads {
    typedef typename Engine::kv_tile tile;
    const machine &on;
    static inline typename Engine::shared lds;

    /* Of each wave: the byte offset of what address(seat) points to. */
    void expect_free(const char *what, int bytes, const std::function<const void *(const typename Engine::seat &)> &address) const {
        const std::vector<lanes> &phases = bytes == 16 ? on.read16 : on.read8;
        cr_assert(!phases.empty(), "%s: reads of %d bytes", what, bytes);
        for (int wave = 0; wave < Engine::THREADS / 64; ++wave) {
            std::vector<long> offsets;
            for (int lane = 0; lane < 64; ++lane)
                offsets.push_back(static_cast<const char *>(address(typename Engine::seat(wave * 64 + lane))) -
                                  reinterpret_cast<const char *>(&lds));
            cr_expect_eq(worst(phases, on.banks, bytes, offsets), 1, "%s, wave %d", what, wave);
        }
    }

    void keys() const {
        for (int n = 0; n < Engine::STEPS / tile::STEPS_A_CHUNK; ++n)
            expect_free("keys", 16, [&](const auto &at) { return tile::chunk_of(lds.tiles[0], at.key_token(), {at.key_chunk(), n * 8}); });
    }
    void values() const {
        for (int g = 0; g < Engine::GROUPS; ++g)
            for (int step = 0; step < tile::K_STEPS; ++step)
                for (int i = 0; i < tile::DEPTH; ++i)
                    expect_free("values", 2 * tile::RUN, [&](const auto &at) {
                        return tile::run_of(lds.tiles[0], tile::value_token(step, i, at.lane),
                                            at.wave * Engine::COLUMNS + g * Engine::GROUP, at.lane);
                    });
    }
    void scores() const {
        expect_free("scores", 16, [&](const auto &at) { return &lds.scores[0][at.team][0][at.lane]; });
    }
};

/* ---- stores: what convert puts, in fibers, as its threads may exchange scales ---- */

struct store_args {
    void (*record)(const store_args &args);
    std::vector<std::vector<long>> *offsets; /* [thread][store]; those of raw chunks come after those converted, at their round */
};

constexpr size_t max_stores = 32;

template <typename Engine, typename Kv> void record_stores(const store_args &args) {
    typedef typename Engine::kv_tile tile;
    static typename Engine::shared lds;
    const mla_chunk raw[tile::ROUNDS] = {};
    const uint8_t scales[tile::ROUNDS] = {};
    const int thread = mla_thread();
    size_t next = 0;
    std::vector<long> &offsets = (*args.offsets)[static_cast<size_t>(thread)];
    Kv::template convert<tile::STAGERS>(raw, scales, thread % tile::STAGERS, [&](mla_place place, const mla_chunk &chunk) {
        const char *at = reinterpret_cast<char *>(tile::chunk_of(lds.tiles[0], tile::token_of(thread), place));
        const bool is_raw = &chunk >= raw && &chunk < raw + tile::ROUNDS;
        offsets[is_raw ? max_stores / 2 + static_cast<size_t>(&chunk - raw) : next++] = at - reinterpret_cast<const char *>(&lds);
    });
}

template <typename Engine, typename Kv> void expect_stores_free(const char *kv) {
    std::vector<std::vector<long>> offsets(Engine::THREADS, std::vector<long>(max_stores, -1));
    const store_args args = {record_stores<Engine, Kv>, &offsets};
    const mla_host_launch launch = {mla_host_kernel_find("cdna3", "record"), &args, 1, Engine::THREADS, 64, 0, 0};
    const mla_status status = mla_host_execute(&launch);
    cr_assert_eq(status.code, MLA_OK, "%s", status.message);
    size_t stored = 0;
    for (size_t store = 0; store < max_stores; ++store)
        for (size_t wave = 0; wave < Engine::THREADS / 64; ++wave) {
            std::vector<long> of_wave;
            for (size_t lane = 0; lane < 64; ++lane) {
                of_wave.push_back(offsets[wave * 64 + lane][store]);
                stored += of_wave.back() >= 0;
            }
            cr_expect_leq(worst(write16, write_banks, 16, of_wave), 1, "%s, store %zu, wave %zu", kv, store, wave);
        }
    cr_expect_eq(stored, static_cast<size_t>(Engine::TOKENS * mla_key_chunks), "%s: every chunk is stored once", kv);
}

template <template <typename> class Engine> void expect_no_conflicts(const machine &on) {
    const reads<Engine<mla_kv_bf16>> read = {on};
    read.keys();
    read.values();
    read.scores();
    expect_stores_free<Engine<mla_kv_bf16>, mla_kv_bf16>("bf16");
    expect_stores_free<Engine<mla_kv_fp8>, mla_kv_fp8>("fp8");
    expect_stores_free<Engine<mla_kv_fp8b656>, mla_kv_fp8b656>("fp8b656");
    expect_stores_free<Engine<mla_kv_mxfp4>, mla_kv_mxfp4>("mxfp4");
}

template <typename Kv> using cdna3 = mla_cdna_engine<Kv, mla_cdna3_unit, mla_cdna3_shape>;
template <typename Kv> using cdna3tall = mla_cdna_engine<Kv, mla_cdna3_unit, mla_cdna3_tall_shape>;
template <typename Kv> using cdna4 = mla_cdna_engine<Kv, mla_cdna4_unit, mla_cdna4_shape>;
template <typename Kv> using cdna4tall = mla_cdna_engine<Kv, mla_cdna4_unit, mla_cdna4_tall_shape>;

} // namespace

MLA_DEVICE_BEGIN
MLA_KERNEL(record, store_args, 0) {
    args.record(args);
}
MLA_DEVICE_END

Test(banks, cdna3_has_no_conflicts) {
    expect_no_conflicts<cdna3>(gfx942);
}

Test(banks, cdna3tall_has_no_conflicts) {
    expect_no_conflicts<cdna3tall>(gfx942);
}

Test(banks, cdna4_has_no_conflicts) {
    expect_no_conflicts<cdna4>(gfx950);
}

Test(banks, cdna4tall_has_no_conflicts) {
    expect_no_conflicts<cdna4tall>(gfx950);
}
