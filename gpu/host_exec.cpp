/*
 * The machine behind host execution: fibers, their rendezvous, LDS and asynchronous copies. (What waves do when they have met: host_matrix.cpp.)
 *
 * A block runs on one OS thread, in rounds. In a round each lane of one wave runs until its next rendezvous and then jumps straight to the next
 * lane; the last one performs the step for the whole wave, and a wave is chosen for the next round. So a wave may run as far ahead of the
 * others as barriers allow.
 *
 * Fibers are Boost.Context's bare contexts rather than its fiber class: a block whose threads can never meet is abandoned, which a bare
 * context allows by forgetting it, whereas a fiber object must unwind its stack by an exception through the kernel.
 */
#include "host_exec.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define MLA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MLA_ASAN 1
#endif
#endif
#ifdef MLA_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

__thread int mla_host_thread, mla_host_block;

namespace {

#ifdef MLA_ASAN
constexpr size_t stack_bytes = 512 << 10; /* redzones swell the frames */
#else
constexpr size_t stack_bytes = 128 << 10; /* address space: only touched pages are ever backed */
#endif
constexpr uint8_t poison = 0xFF; /* a NaN in every float format, a nonsense integer */

/* ---- stacks and contexts ------------------------------------------------------------------------------------------------------ */

/* Equal stacks, each above a page that may not be touched. */
class Stacks {
  public:
    Stacks() = default;
    Stacks(const Stacks &) = delete;
    Stacks &operator=(const Stacks &) = delete;
    ~Stacks() { release(); }

    void reserve(size_t count) {
        if (count <= count_)
            return;
        release();
        void *memory = mmap(nullptr, count * stride(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            throw std::bad_alloc();
        memory_ = static_cast<char *>(memory);
        count_ = count;
        for (size_t i = 0; i < count; ++i)
            if (mprotect(memory_ + i * stride(), page(), PROT_NONE)) {
                release();
                throw std::bad_alloc();
            }
    }

    char *bottom(size_t i) const { return memory_ + i * stride() + page(); }
    /* Staggered, or all stacks would compete for the same few sets of the cache. */
    char *top(size_t i) const { return bottom(i) + stack_bytes - stagger(i); }
    static size_t stagger(size_t i) { return i * 448 % 4096; }

    /* Frames that never returned leave ASan's marks behind. */
    void forget_frames() const {
#ifdef MLA_ASAN
        for (size_t i = 0; i < count_; ++i)
            __asan_unpoison_memory_region(bottom(i), stack_bytes);
#endif
    }

  private:
    static size_t page() {
        return static_cast<size_t>(sysconf(_SC_PAGESIZE));
    }
    static size_t stride() {
        return stack_bytes + page();
    }
    void release() {
        if (memory_)
            munmap(memory_, count_ * stride());
        memory_ = nullptr;
        count_ = 0;
    }

    char *memory_ = nullptr;
    size_t count_ = 0;
};

struct Context {
    fcontext_t at;            /* where it stopped */
    const void *stack_bottom; /* for ASan, like the rest */
    size_t stack_size;
    void *fake_stack;
};

/* Before every jump. */
void leaving([[maybe_unused]] Context &from, [[maybe_unused]] const Context &to, [[maybe_unused]] bool for_good) {
#ifdef MLA_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_size);
#endif
}

/* On the new stack, after every jump: notes where the other side stopped. */
void landed(transfer_t from, [[maybe_unused]] const Context &self) {
    auto *left = static_cast<Context *>(from.data);
    left->at = from.fctx;
#ifdef MLA_ASAN
    __sanitizer_finish_switch_fiber(self.fake_stack, &left->stack_bottom, &left->stack_size);
#endif
}

void jump(Context &from, const Context &to, bool for_good) {
    leaving(from, to, for_good);
    landed(jump_fcontext(to.at, &from), from);
}

/* ---- a block -------------------------------------------------------------------------------------------------------------------- */

struct Copy {
    void *lds;
    const void *global;
    int64_t group;
};

struct Thread {
    Context context;
    std::vector<Copy> copies; /* under way, oldest first */
    int64_t groups;           /* committed */
};

enum class Wave : uint8_t { runnable, at_barrier, ended };

struct Free {
    void operator()(char *pointer) const { std::free(pointer); }
};

/* Runs one block after another on one OS thread, and keeps stacks and LDS between them. */
class Machine {
  public:
    mla_status run(const mla_host_launch &launch, int block);
    transfer_t arrive(const mla_host_step &step, const mla_host_operands &operands);
    [[noreturn]] void abandon(const mla_status &status);
    bool in_lds(const void *pointer, size_t bytes) const;

    Thread &thread() { return threads_[static_cast<size_t>(mla_host_thread)]; }
    const mla_host_launch &launch() const { return *launch_; }
    char *lds() const { return lds_.get(); }

  private:
    void prepare(const mla_host_launch &launch, int block);
    static void run_thread(transfer_t from);
    Context &next(const mla_host_step &step);
    void finish_round();
    void join_barrier();
    [[noreturn]] void refuse(const mla_host_step &x, int x_thread, const mla_host_step &y, int y_thread);
    bool choose_wave();
    void draw_order();
    uint64_t draw(uint64_t below);

    Stacks stacks_;
    std::vector<Thread> threads_;
    std::vector<mla_host_operands> operands_; /* [threads] */
    std::vector<Wave> waves_;
    std::vector<int> order_; /* of the lanes in this round */
    std::unique_ptr<char, Free> lds_;
    size_t lds_bytes_ = 0;

    const mla_host_launch *launch_ = nullptr;
    Context caller_ = {};
    mla_status status_ = {};
    uint64_t random_ = 0;

    int wave_ = 0;    /* whose round it is */
    int arrived_ = 0; /* lanes of it that wait */
    const mla_host_step *step_ = nullptr;
    int waiting_ = 0, ended_ = 0; /* waves */
    const mla_host_step *barrier_ = nullptr;
    int barrier_wave_ = 0; /* the first that waits at it */
};

thread_local Machine machine_of_thread;
__thread Machine *machine; /* the same, without a check for its construction at each use */

constexpr mla_host_step kernel_end = {"end", "", 0, nullptr, 0, 0, 0};

bool same_place(const mla_host_step &x, const mla_host_step &y) {
    return x.line == y.line && x.perform == y.perform && (x.file == y.file || !std::strcmp(x.file, y.file));
}

mla_status Machine::run(const mla_host_launch &launch, int block) {
    try {
        prepare(launch, block);
    } catch (const std::bad_alloc &) {
        return mla_error(MLA_ENOMEM, "no memory for %d fibers and %zu bytes of LDS", launch.threads, launch.lds_bytes);
    }
    machine = this;
    choose_wave();
    mla_host_thread = wave_ * launch.wave + order_[0];
    jump(caller_, thread().context, false);
    if (status_.code != MLA_OK)
        stacks_.forget_frames();
    return status_;
}

void Machine::prepare(const mla_host_launch &launch, int block) {
    const auto threads = static_cast<size_t>(launch.threads), wave = static_cast<size_t>(launch.wave);
    stacks_.reserve(threads);
    threads_.resize(std::max(threads, threads_.size()));
    for (size_t i = 0; i < threads; ++i) {
        Thread &thread = threads_[i];
        thread.context = {make_fcontext(stacks_.top(i), stack_bytes - stacks_.stagger(i), run_thread), stacks_.bottom(i), stack_bytes,
                          nullptr};
        thread.copies.clear();
        thread.groups = 0;
    }
    operands_.resize(threads);
    waves_.assign(threads / wave, Wave::runnable);
    order_.resize(wave);
    std::iota(order_.begin(), order_.end(), 0);
    if (!lds_ || lds_bytes_ != launch.lds_bytes) {
        void *memory = nullptr;
        if (posix_memalign(&memory, 128, launch.lds_bytes))
            throw std::bad_alloc();
        lds_.reset(static_cast<char *>(memory));
        lds_bytes_ = launch.lds_bytes;
    }
    std::memset(lds_.get(), poison, lds_bytes_);
    launch_ = &launch;
    status_ = mla_ok();
    random_ = launch.fiber_seed + static_cast<uint64_t>(block) * 0xD1B54A32D192ED03;
    wave_ = arrived_ = waiting_ = ended_ = 0;
    mla_host_block = block;
}

void Machine::run_thread(transfer_t from) {
    landed(from, machine->thread().context);
    machine->launch_->kernel(machine->launch_->args);
    Context &self = machine->thread().context;
    jump(self, machine->next(kernel_end), true);
}

transfer_t Machine::arrive(const mla_host_step &step, const mla_host_operands &operands) {
    Context &self = thread().context;
    operands_[static_cast<size_t>(mla_host_thread)] = operands;
    Context &to = next(step);
    if (&to == &self)
        return {};
    leaving(self, to, false);
    return {to.at, &self};
}

/* This thread arrived at the step: who runs now? */
Context &Machine::next(const mla_host_step &step) {
    if (arrived_ == 0)
        step_ = &step;
    else if (!same_place(step, *step_))
        refuse(*step_, wave_ * launch_->wave + order_[0], step, mla_host_thread);
    if (++arrived_ == launch_->wave) {
        finish_round();
        if (ended_ == static_cast<int>(waves_.size()))
            return caller_;
    }
    mla_host_thread = wave_ * launch_->wave + order_[static_cast<size_t>(arrived_)];
    return thread().context;
}

/* Two threads that should have met wait at different places, or one has ended. */
void Machine::refuse(const mla_host_step &x, int x_thread, const mla_host_step &y, int y_thread) {
    if (&x == &kernel_end)
        refuse(y, y_thread, x, x_thread);
    if (&y == &kernel_end)
        abandon(mla_error(MLA_EDEVICE, "%s:%d: %s not reached by all: thread %d of block %d waits, thread %d has ended", x.file, x.line,
                          x.what, x_thread, mla_host_block, y_thread));
    abandon(mla_error(MLA_EDEVICE, "%s:%d: %s not reached by all: thread %d of block %d waits, thread %d is at the %s of %s:%d", x.file,
                      x.line, x.what, x_thread, mla_host_block, y_thread, y.what, y.file, y.line));
}

void Machine::finish_round() {
    const auto wave = static_cast<size_t>(wave_);
    if (step_ == &kernel_end) {
        waves_[wave] = Wave::ended;
        ++ended_;
    } else if (step_->perform) {
        if (step_->wave && step_->wave != launch_->wave)
            abandon(mla_error(MLA_EDEVICE, "%s:%d: %s needs a wave of %d lanes, not %d", step_->file, step_->line, step_->what, step_->wave,
                              launch_->wave));
        step_->perform(*step_, &operands_[wave * order_.size()]);
    } else {
        join_barrier();
    }
    arrived_ = 0;
    if (!choose_wave() && waiting_ > 0) {
        const auto ended = std::find(waves_.begin(), waves_.end(), Wave::ended) - waves_.begin();
        refuse(*barrier_, barrier_wave_ * launch_->wave, kernel_end, static_cast<int>(ended) * launch_->wave);
    }
}

void Machine::join_barrier() {
    if (waiting_ == 0) {
        barrier_ = step_;
        barrier_wave_ = wave_;
    } else if (!same_place(*step_, *barrier_)) {
        refuse(*barrier_, barrier_wave_ * launch_->wave, *step_, wave_ * launch_->wave);
    }
    waves_[static_cast<size_t>(wave_)] = Wave::at_barrier;
    if (++waiting_ == static_cast<int>(waves_.size())) {
        std::fill(waves_.begin(), waves_.end(), Wave::runnable);
        waiting_ = 0;
    }
}

/* The next round's wave, and its lanes' order: the same wave as long as it can, or any. False when none can run. */
bool Machine::choose_wave() {
    const int waves = static_cast<int>(waves_.size());
    const int first = launch_->fiber_seed ? static_cast<int>(draw(static_cast<uint64_t>(waves))) : wave_;
    for (int i = 0; i < waves; ++i) {
        wave_ = (first + i) % waves;
        if (waves_[static_cast<size_t>(wave_)] == Wave::runnable) {
            draw_order();
            return true;
        }
    }
    return false;
}

/* Fisher and Yates' shuffle. */
void Machine::draw_order() {
    if (launch_->fiber_seed)
        for (size_t i = order_.size(); i > 1; --i)
            std::swap(order_[i - 1], order_[draw(i)]);
}

/* SplitMix64 (Steele, Lea, Flood 2014), scaled to 0 .. below - 1. */
uint64_t Machine::draw(uint64_t below) {
    uint64_t z = random_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return ((z ^ z >> 31) >> 32) * below >> 32;
}

void Machine::abandon(const mla_status &status) {
    status_ = status;
    jump(thread().context, caller_, true);
    __builtin_unreachable();
}

bool Machine::in_lds(const void *pointer, size_t bytes) const {
    const auto offset = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(lds_.get());
    return offset <= lds_bytes_ && bytes <= lds_bytes_ - offset;
}

const mla_host_kernel *kernels; /* all registered */

} // namespace

/* ---- primitives ----------------------------------------------------------------------------------------------------------------- */

transfer_t mla_host_arrive(const mla_host_step &step, const mla_host_operands &operands) {
    return machine->arrive(step, operands);
}

void mla_host_landed(transfer_t from) {
    landed(from, machine->thread().context);
}

void mla_host_abandon(const mla_status &status) {
    machine->abandon(status);
}

void *mla_host_lds(size_t bytes, const char *file, int line) {
    if (bytes > machine->launch().lds_bytes)
        machine->abandon(
            mla_error(MLA_EDEVICE, "%s:%d: %zu bytes of LDS used, %zu launched", file, line, bytes, machine->launch().lds_bytes));
    return machine->lds();
}

void mla_host_copy16(void *lds, const void *global, const char *file, int line) {
    if (!machine->in_lds(lds, 16))
        machine->abandon(mla_error(MLA_EDEVICE, "%s:%d: copy to an address outside LDS", file, line));
    if ((reinterpret_cast<uintptr_t>(lds) | reinterpret_cast<uintptr_t>(global)) % 16)
        machine->abandon(mla_error(MLA_EDEVICE, "%s:%d: copy of 16 bytes between unaligned addresses", file, line));
    Thread &thread = machine->thread();
    bool queued = true;
    try {
        thread.copies.push_back({lds, global, thread.groups});
    } catch (const std::bad_alloc &) {
        queued = false;
    }
    if (!queued)
        machine->abandon(mla_error(MLA_ENOMEM, "%s:%d: no memory for a copy", file, line));
    std::memset(lds, poison, 16);
}

void mla_host_copy_commit() {
    ++machine->thread().groups;
}

void mla_host_copy_wait(int newest) {
    Thread &thread = machine->thread();
    auto copy = thread.copies.begin();
    for (; copy != thread.copies.end() && copy->group < thread.groups - newest; ++copy)
        std::memcpy(copy->lds, copy->global, 16);
    thread.copies.erase(thread.copies.begin(), copy);
}

/* ---- launch ------------------------------------------------------------------------------------------------------------------------ */

mla_host_kernel::mla_host_kernel(const char *engine_, const char *name_, mla_host_entry entry_)
    : engine(engine_), name(name_), entry(entry_), next(kernels) {
    kernels = this;
}

mla_host_entry mla_host_kernel_find(const char *engine, const char *name) {
    for (const mla_host_kernel *kernel = kernels; kernel; kernel = kernel->next)
        if (!std::strcmp(kernel->engine, engine) && !std::strcmp(kernel->name, name))
            return kernel->entry;
    return nullptr;
}

static mla_status check(const mla_host_launch *launch) {
    if (!launch || !launch->kernel)
        return mla_error(MLA_EINVAL, "host launch without a kernel");
    if (launch->blocks < 0 || launch->threads < 1 || launch->wave < 1 || launch->threads % launch->wave)
        return mla_error(MLA_EINVAL, "host launch of %d blocks of %d threads in waves of %d", launch->blocks, launch->threads,
                         launch->wave);
    return mla_ok();
}

mla_status mla_host_execute(const mla_host_launch *launch) {
    mla_status status = check(launch);
    if (status.code != MLA_OK)
        return status;
    int failed = launch->blocks; /* the lowest block that did: blocks below it still run, so that the message is always the same */
#pragma omp parallel for schedule(dynamic)
    for (int block = 0; block < launch->blocks; ++block) {
        int limit;
#pragma omp atomic read
        limit = failed;
        if (block > limit)
            continue;
        const mla_status outcome = machine_of_thread.run(*launch, block);
        if (outcome.code == MLA_OK)
            continue;
#pragma omp critical(mla_host_failure)
        if (block < failed) {
#pragma omp atomic write
            failed = block;
            status = outcome;
        }
    }
    return status;
}
