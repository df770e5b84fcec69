#pragma once

// The threads of a thread block as fibers of one host thread. They take turns and switch where a
// block or a warp waits for its other threads.

#include <csetjmp>

#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline thread_local dim3 threadIdx;
inline thread_local dim3 blockIdx;
inline thread_local dim3 blockDim;
inline thread_local dim3 gridDim;

namespace zero::test::emulated {

/// The fibers of a host thread. Each is started once, by a system call, and reused. Fibers switch
/// by jumps, which need no system call.
struct Fibers {
    static constexpr unsigned most = 1024;
    static constexpr std::size_t stack_bytes = 64 * 1024;

    std::jmp_buf host;
    std::jmp_buf places[most];
    bool is_started[most]{};
    std::unique_ptr<char[]> stacks{new char[most * stack_bytes]};

    static Fibers& of_this_thread() {
        static thread_local std::unique_ptr<Fibers> const fibers = std::make_unique<Fibers>();
        return *fibers;
    }

    [[noreturn, gnu::noinline]] void resume(unsigned thread, void (*start)()) {
        threadIdx.x = thread;
        if (is_started[thread]) {
            _longjmp(places[thread], 1);
        }
        is_started[thread] = true;
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = stacks.get() + thread * stack_bytes;
        context.uc_stack.ss_size = stack_bytes;
        context.uc_link = nullptr;
        makecontext(&context, start, 0);
        setcontext(&context);
        std::abort();
    }
};

class Block {
public:
    static thread_local inline Block* current = nullptr;

    template <class Body>
    static void run(unsigned threads, Body const& body) {
        Block block(threads);
        block._call = [](void const* of) { (*static_cast<Body const*>(of))(); };
        block._body = &body;
        current = &block;
        block.switch_to_first();
        current = nullptr;
    }

    /// Waits for the threads of `mask` in this thread's warp, all of which must arrive.
    void sync_warp(unsigned mask) {
        wait(_warps[threadIdx.x / 32][mask_index(mask)],
             static_cast<unsigned>(__builtin_popcount(mask)));
    }
    void sync_all() { wait(_all, _threads); }

    std::uint64_t& slot(unsigned thread) { return _slots[thread]; }

private:
    struct Barrier {
        unsigned arrived = 0;
        unsigned generation = 0;
    };

    explicit Block(unsigned threads)
        : _threads(threads), _is_done(threads, false), _slots(threads),
          _warps(threads / 32 + 1, std::vector<Barrier>(5)) {}

    /// Returns an index for a mask: of one of the four groups of eight threads, or of the whole
    /// warp.
    static unsigned mask_index(unsigned mask) {
        for (unsigned group = 0; group < 4; ++group) {
            if (mask == 0xffU << 8 * group) {
                return group;
            }
        }
        if (mask != 0xffffffffU) {
            std::abort(); // kernels use no other masks
        }
        return 4;
    }

    /// Runs on a fiber: does its work, block after block.
    static void start() {
        for (;;) {
            current->_call(current->_body);
            current->_is_done[threadIdx.x] = true;
            ++current->_done;
            if (_setjmp(Fibers::of_this_thread().places[threadIdx.x]) == 0) {
                current->leave();
            }
        }
    }

    void wait(Barrier& barrier, unsigned count) {
        unsigned const generation = barrier.generation;
        if (++barrier.arrived == count) {
            barrier.arrived = 0;
            ++barrier.generation;
            return;
        }
        while (barrier.generation == generation) {
            yield();
        }
    }

    [[gnu::noinline]] void yield() {
        if (_setjmp(Fibers::of_this_thread().places[threadIdx.x]) == 0) {
            unsigned const next = following(threadIdx.x);
            if (next == threadIdx.x) {
                std::abort(); // a thread never arrives at the barrier
            }
            Fibers::of_this_thread().resume(next, &Block::start);
        }
    }

    /// Returns the next thread that is not done.
    [[nodiscard]] unsigned following(unsigned thread) const {
        do {
            thread = (thread + 1) % _threads;
        } while (_is_done[thread]);
        return thread;
    }

    [[gnu::noinline]] void switch_to_first() {
        if (_setjmp(Fibers::of_this_thread().host) == 0) {
            Fibers::of_this_thread().resume(0, &Block::start);
        }
    }

    [[noreturn]] void leave() {
        if (_done == _threads) {
            _longjmp(Fibers::of_this_thread().host, 1);
        }
        Fibers::of_this_thread().resume(following(threadIdx.x), &Block::start);
    }

    unsigned _threads;
    unsigned _done = 0;
    std::vector<char> _is_done;
    std::vector<std::uint64_t> _slots;
    Barrier _all;
    std::vector<std::vector<Barrier>> _warps;
    void (*_call)(void const*) = nullptr;
    void const* _body = nullptr;
};

/// Returns the value of thread `from` of the block.
template <class T>
T shuffle_from(unsigned mask, T value, unsigned from) {
    Block& block = *Block::current;
    std::memcpy(&block.slot(threadIdx.x), &value, sizeof(T));
    block.sync_warp(mask);
    T result;
    std::memcpy(&result, &block.slot(from), sizeof(T));
    block.sync_warp(mask); // before the slot is written again
    return result;
}

template <class T>
T shuffle_xor(unsigned mask, T value, unsigned lanes) {
    return shuffle_from(mask, value, threadIdx.x ^ lanes);
}

/// Counts the calls of `atomicAdd`, in shared and in global memory.
inline std::atomic<std::size_t> atomic_additions{0};

} // namespace zero::test::emulated
