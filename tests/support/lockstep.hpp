#pragma once

// Ranks as fibers of one thread, for tests that make tens of thousands of groups: a collective
// costs some hundred nanoseconds a rank instead of a meeting of threads.

#include <zero/comm/detail/host_communicator.hpp>
#include <zero/core/error.hpp>

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zero::test {

/// A group of ranks that take turns. A collective moves all data when its last rank arrives, so
/// every queue of the ranks must be inline. It compares calls and tags.
class LockstepGroup {
public:
    /// @param compares_tags false: like a transport that sends only data
    explicit LockstepGroup(std::size_t world, bool compares_tags = true)
        : _ranks(world), _compares_tags(compares_tags), _fibers(std::make_unique<Fiber[]>(world)) {}

    [[nodiscard]] std::size_t world() const noexcept { return _ranks; }

    /// Runs `body(rank)` on a fiber for each rank, until all have returned. A body must not throw.
    template <class Body>
    void run(Body const& body) {
        _call = [](void const* of, std::size_t rank) { (*static_cast<Body const*>(of))(rank); };
        _body = &body;
        for (std::size_t rank = 0; rank < _ranks; ++rank) {
            Fiber& fiber = _fibers[rank];
            fiber.stack = stack(rank);
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack;
            fiber.context.uc_stack.ss_size = stack_bytes;
            fiber.context.uc_link = nullptr;
            auto const address = reinterpret_cast<std::uintptr_t>(this);
            makecontext(&fiber.context, reinterpret_cast<void (*)()>(&LockstepGroup::start), 2,
                        static_cast<unsigned>(address & 0xffffffffU),
                        static_cast<unsigned>(address >> 32U));
        }
        _current = 0;
        swapcontext(&_main, &_fibers[0].context);
    }

    /// Shows a call and returns when all ranks have made it and the data has moved.
    void collective(std::size_t rank, zero::detail::CollectiveCall const& call,
                    zero::detail::CollectiveMemory const& memory) {
        require_alive();
        _fibers[rank].call = &call;
        _fibers[rank].memory = &memory;
        if (++_arrived == _ranks) {
            move();
            _arrived = 0;
            ++_generation;
            require_alive();
            return;
        }
        for (std::size_t const generation = _generation; generation == _generation;) {
            if (_done != 0) {
                abort("a rank has left");
            }
            require_alive();
            yield();
        }
        require_alive();
    }

    void abort(std::string_view cause) {
        if (_cause.empty()) {
            _cause = cause.empty() ? "aborted" : std::string(cause);
        }
    }

private:
    static constexpr std::size_t stack_bytes = std::size_t{1} << 18U;

    struct Fiber {
        ucontext_t context;
        char* stack = nullptr;
        zero::detail::CollectiveCall const* call = nullptr;
        zero::detail::CollectiveMemory const* memory = nullptr;
        bool is_done = false;
    };

    static char* stack(std::size_t rank) {
        static thread_local std::vector<std::unique_ptr<char[]>> stacks;
        while (stacks.size() <= rank) {
            stacks.emplace_back(new char[stack_bytes]); // not initialised
        }
        return stacks[rank].get();
    }

    static void start(unsigned low, unsigned high) {
        auto* const group =
            reinterpret_cast<LockstepGroup*>(std::uintptr_t{low} | std::uintptr_t{high} << 32U);
        std::size_t const rank = group->_current;
        group->_call(group->_body, rank);
        group->_fibers[rank].is_done = true;
        ++group->_done;
        group->yield();
    }

    /// Continues the next rank that has not returned; the caller of `run` if there is none.
    void yield() {
        std::size_t const from = _current;
        if (_done == _ranks) {
            swapcontext(&_fibers[from].context, &_main);
        }
        do {
            _current = (_current + 1) % _ranks;
        } while (_fibers[_current].is_done);
        if (_current != from) {
            swapcontext(&_fibers[from].context, &_fibers[_current].context);
        }
    }

    void require_alive() const {
        if (!_cause.empty()) {
            throw Aborted("zero: another rank failed: " + _cause);
        }
    }

    void move() {
        auto const& call = *_fibers[0].call;
        for (std::size_t rank = 1; rank < _ranks; ++rank) {
            zero::detail::CollectiveCall own = *_fibers[rank].call;
            own.tag = _compares_tags ? own.tag : call.tag;
            if (!(own == call)) {
                abort(zero::detail::describe(0, call, rank, *_fibers[rank].call));
                return;
            }
        }
        auto const& cuts = _fibers[0].memory->cuts;
        std::size_t const bytes = _fibers[0].memory->element_bytes;
        auto const receive = [&](std::size_t rank) {
            return static_cast<std::byte*>(_fibers[rank].memory->receive);
        };
        auto const sent = [&](std::size_t rank) {
            return static_cast<std::byte const*>(_fibers[rank].memory->send);
        };
        auto const sum = [&](std::size_t extent, std::byte* out) {
            std::vector<void const*> pieces;
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                pieces.push_back(sent(rank) + cuts[extent] * bytes);
            }
            if (cuts[extent] != cuts[extent + 1]) {
                auto const& how = _fibers[extent].memory->sum;
                how.add(out, how.held, 0, pieces.data(), static_cast<int>(_ranks),
                        cuts[extent + 1] - cuts[extent]);
            }
        };
        auto const copy = [](std::byte* to, std::byte const* from, std::size_t size) {
            if (size != 0) {
                std::memmove(to, from, size);
            }
        };
        switch (call.kind) {
        case CollectiveKind::reduce_scatter:
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                sum(rank, receive(rank));
            }
            break;
        case CollectiveKind::all_gather:
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                for (std::size_t from = 0; from < _ranks; ++from) {
                    copy(receive(rank) + cuts[from] * bytes, sent(from),
                         (cuts[from + 1] - cuts[from]) * bytes);
                }
            }
            break;
        case CollectiveKind::all_reduce: {
            std::vector<std::byte> all(call.count * bytes);
            for (std::size_t extent = 0; extent < _ranks; ++extent) {
                sum(extent, all.data() + cuts[extent] * bytes);
            }
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                copy(receive(rank), all.data(), all.size());
            }
            break;
        }
        case CollectiveKind::exchange:
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                std::size_t const own = (cuts[rank + 1] - cuts[rank]) * bytes;
                for (std::size_t from = 0; from < _ranks; ++from) {
                    copy(receive(rank) + from * own, sent(from) + cuts[rank] * bytes, own);
                }
            }
            break;
        case CollectiveKind::broadcast:
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                copy(receive(rank), sent(call.detail), call.count * bytes);
            }
            break;
        case CollectiveKind::integers: {
            std::vector<std::int64_t> all(call.count);
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                auto const* const values = reinterpret_cast<std::int64_t const*>(sent(rank));
                for (std::size_t index = 0; index < all.size(); ++index) {
                    bool const is_sum = index < call.sums();
                    all[index] = rank == 0 ? values[index]
                                 : is_sum  ? all[index] + values[index]
                                           : std::min(all[index], values[index]);
                }
            }
            for (std::size_t rank = 0; rank < _ranks; ++rank) {
                copy(receive(rank), reinterpret_cast<std::byte const*>(all.data()),
                     all.size() * sizeof(std::int64_t));
            }
            break;
        }
        }
    }

    std::size_t _ranks;
    bool _compares_tags;
    std::unique_ptr<Fiber[]> _fibers;
    ucontext_t _main{};
    void (*_call)(void const*, std::size_t) = nullptr;
    void const* _body = nullptr;
    std::size_t _current = 0;
    std::size_t _done = 0;
    std::size_t _arrived = 0;
    std::size_t _generation = 0;
    std::string _cause;
};

/// What `HostCommunicator` needs of a transport.
class LockstepCollectives {
public:
    static constexpr bool reduces_integers_together = true;

    LockstepCollectives(LockstepGroup& group, std::size_t rank) : _group(&group), _rank(rank) {}

    [[nodiscard]] zero::detail::GroupPlace place() const noexcept {
        return {_rank, _group->world()};
    }
    [[nodiscard]] std::size_t scratch_bytes() const noexcept { return 0; }
    [[nodiscard]] zero::detail::SharedGroup const& shared() const noexcept { return _shared; }
    void enqueue(zero::detail::CollectiveCall const& call,
                 zero::detail::CollectiveMemory const& memory, host::Queue*) {
        _group->collective(_rank, call, memory);
    }
    void abort(std::string_view cause, bool) noexcept { _group->abort(cause); }
    void rethrow_failure() {}

private:
    LockstepGroup* _group;
    std::size_t _rank;
    zero::detail::SharedGroup _shared; ///< none
};

class LockstepCommunicator : public zero::detail::HostCommunicator<LockstepCollectives> {
public:
    LockstepCommunicator(LockstepGroup& group, std::size_t rank)
        : HostCommunicator(std::make_unique<LockstepCollectives>(group, rank)) {}
};

} // namespace zero::test
