#pragma once

// The threads of a thread block as fibers of one host thread. They take turns and switch where a
// block or a warp waits for its other threads.

#include <csetjmp>

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
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

/// A place to which a jump returns. glibc's functions unwind and mangle, which takes most of the
/// time of a switch, so the compiler's are used where they exist.
class Place {
public:
#if defined(__x86_64__)
    using Memory = void* [5];
#define ZERO_TEST_SET_PLACE(place) __builtin_setjmp((place).memory)
    [[noreturn, gnu::noinline]] void jump() { __builtin_longjmp(memory, 1); }
#else
    using Memory = std::jmp_buf;
#define ZERO_TEST_SET_PLACE(place) _setjmp((place).memory)
    [[noreturn, gnu::noinline]] void jump() { _longjmp(memory, 1); }
#endif
    Memory memory;
};

/// Runs the threads of blocks on one host thread. A fiber runs one thread after the other, until
/// one has to wait; then another fiber continues with the next thread. So a kernel without barriers
/// runs on the first fiber alone, which is the stack of the host thread.
class Block {
public:
    static Block& current() {
        static thread_local std::unique_ptr<Block> const block(new Block);
        return *block;
    }

    template <class Body>
    void run(unsigned threads, Body const& body) {
        if (threads > most) {
            std::abort(); // as many as a device has
        }
        _call = [](void const* of) { (*static_cast<Body const*>(of))(); };
        _body = &body;
        _threads = threads;
        _begun = 0;
        _done = 0;
        _all.expected = threads;
        if (_warps.size() < threads / 32 + 1) {
            _warps.resize(threads / 32 + 1);
        }
        run_threads();
        if (_done != _threads) {
            _is_host_waiting = true;
            switch_from(0);
        }
    }

    void sync_all() { wait(_all); }

    /// Returns the bitwise or of the values of all threads.
    std::uint32_t any_of_all(std::uint32_t bits) { return wait(_all, bits); }

    /// Returns the bitwise or of the values of the threads of `mask` in this thread's warp, all of
    /// which must arrive.
    std::uint32_t any_of_warp(unsigned mask, std::uint32_t bits) {
        return wait(part_of_warp(mask), bits);
    }

    /// Returns the value of another thread of `mask` in this thread's warp.
    template <class T>
    T shuffle(unsigned mask, T value, unsigned lane) {
        Part& part = part_of_warp(mask);
        auto& slots = part.slots[part.generation % 2];
        std::memcpy(&slots[threadIdx.x % 32], &value, sizeof(T));
        wait(part);
        T result;
        std::memcpy(&result, &slots[lane % 32], sizeof(T));
        return result;
    }

private:
    static constexpr unsigned most = 1024;
    static constexpr std::size_t stack_bytes = 64 * 1024;
    static constexpr unsigned none = most;

    /// What threads wait for. Values alternate between two places: a thread may write the next one
    /// while another has not read the last one, but not the one after.
    struct Barrier {
        unsigned expected = 0;
        unsigned arrived = 0;
        unsigned generation = 0;
        unsigned first = none; ///< the fibers that wait, a list
        unsigned last = none;
        std::uint32_t bits[2]{};
    };
    struct Part : Barrier {
        std::uint64_t slots[2][32];
    };

    struct Fiber {
        Place place;
        unsigned next = none; ///< in a list
        bool is_started = false;
    };

    /// Returns the barrier of a mask: of one of the four groups of eight threads, or of the whole
    /// warp.
    Part& part_of_warp(unsigned mask) {
        auto& parts = _warps[threadIdx.x / 32];
        for (unsigned group = 0; group < 4; ++group) {
            if (mask == 0xffU << 8 * group) {
                parts[group].expected = 8;
                return parts[group];
            }
        }
        if (mask != 0xffffffffU) {
            std::abort(); // kernels use no other masks
        }
        parts[4].expected = 32;
        return parts[4];
    }

    std::uint32_t wait(Barrier& barrier, std::uint32_t bits = 0) {
        unsigned const now = barrier.generation % 2;
        barrier.bits[now] |= bits;
        if (++barrier.arrived == barrier.expected) {
            barrier.arrived = 0;
            barrier.bits[1 - now] = 0;
            ++barrier.generation;
            append(_first_ready, _last_ready, barrier.first, barrier.last);
            barrier.first = none;
        } else {
            append(barrier.first, barrier.last, _fiber, _fiber);
            unsigned const thread = threadIdx.x;
            switch_from(_fiber);
            threadIdx.x = thread;
        }
        return barrier.bits[now];
    }

    /// Appends a list of fibers to another one.
    void append(unsigned& first, unsigned& last, unsigned other_first, unsigned other_last) {
        if (other_first != none) {
            (first == none ? first : _fibers[last].next) = other_first;
            last = other_last;
            _fibers[last].next = none;
        }
    }

    /// Takes the first fiber of a list.
    unsigned take(unsigned& first) {
        unsigned const fiber = first;
        first = _fibers[fiber].next;
        return fiber;
    }

    void run_threads() noexcept {
        while (_begun != _threads) {
            threadIdx.x = _begun++;
            _call(_body);
            ++_done;
        }
    }

    /// Runs on a fiber but the first: threads of block after block.
    static void start() {
        Block& block = current();
        for (unsigned const fiber = block._fiber;;) {
            block.run_threads();
            block._fibers[fiber].next = std::exchange(block._first_free, fiber);
            block.switch_from(fiber);
        }
    }

    [[gnu::noinline]] void switch_from(unsigned fiber) {
        if (ZERO_TEST_SET_PLACE(_fibers[fiber].place) == 0) {
            go_on();
        }
    }

    /// Continues with a thread that has not begun, with one that no longer waits, or, after all,
    /// with the caller of `run`.
    [[noreturn, gnu::noinline]] void go_on() {
        if (_begun != _threads) {
            _fiber = _first_free != none ? take(_first_free) : _used++;
        } else if (_first_ready != none) {
            _fiber = take(_first_ready);
        } else if (_done == _threads && _is_host_waiting) {
            _is_host_waiting = false;
            _fiber = 0;
        } else {
            std::abort(); // a thread never arrives at the barrier
        }
        Fiber& fiber = _fibers[_fiber];
        if (_fiber == 0 || fiber.is_started) {
            fiber.place.jump();
        }
        fiber.is_started = true;
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = _stacks.get() + _fiber * stack_bytes;
        context.uc_stack.ss_size = stack_bytes;
        context.uc_link = nullptr;
        makecontext(&context, &Block::start, 0);
        setcontext(&context);
        std::abort();
    }

    Block() = default;

    void (*_call)(void const*) = nullptr;
    void const* _body = nullptr;
    unsigned _threads = 0;
    unsigned _begun = 0;
    unsigned _done = 0;
    bool _is_host_waiting = false;
    unsigned _fiber = 0; ///< the one that runs
    unsigned _used = 1;  ///< fibers that were ever used
    unsigned _first_ready = none;
    unsigned _last_ready = none;
    unsigned _first_free = none;
    Barrier _all;
    std::vector<std::array<Part, 5>> _warps;
    std::vector<Fiber> _fibers{std::vector<Fiber>(most)};
    std::unique_ptr<char[]> _stacks{new char[most * stack_bytes]}; // not initialised
};

/// Counts the calls of `atomicAdd`, in shared and in global memory.
inline std::atomic<std::size_t> atomic_additions{0};

} // namespace zero::test::emulated
