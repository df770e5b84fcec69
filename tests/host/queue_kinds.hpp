#pragma once

#include <zero/core/host_memory_resource.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/host/threaded_queue.hpp>

#include <cstdint>
#include <memory>

namespace zero::test {

/// @brief A kind of queue. Tests run on every kind; only the delaying one uses the seed.
struct InlineKind {
    static constexpr char const* name = "inline";
    static constexpr bool is_threaded = false;
    static std::unique_ptr<host::Queue> make(std::uint64_t) {
        return std::make_unique<host::InlineQueue>();
    }
};

struct ThreadlessKind {
    static constexpr char const* name = "threadless";
    static constexpr bool is_threaded = false;
    static std::unique_ptr<host::Queue> make(std::uint64_t) {
        static HostMemoryResource memory;
        return std::make_unique<host::ThreadlessQueue>(240, memory);
    }
};

struct ThreadedKind {
    static constexpr char const* name = "threaded";
    static constexpr bool is_threaded = true;
    static std::unique_ptr<host::Queue> make(std::uint64_t) {
        return std::make_unique<host::ThreadedQueue>();
    }
};

struct DelayingKind {
    static constexpr char const* name = "delaying";
    static constexpr bool is_threaded = true;
    static std::unique_ptr<host::Queue> make(std::uint64_t seed) {
        return std::make_unique<host::DelayingQueue>(seed);
    }
};

} // namespace zero::test
