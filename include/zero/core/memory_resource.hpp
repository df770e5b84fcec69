#pragma once

#include "detail/namespace.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace ZERO_NAMESPACE {

/// @brief What a buffer of the engine is for: the rows of the memory plan and of an allocator's
/// account.
enum class BufferKind : std::uint8_t {
    parameters,     ///< parameter storage (replicated or the own shard)
    gradients,      ///< the accumulation buffer (full or the own shard)
    master_weights, ///< what is kept beside the parameters for the update: copies, or the rest of a
                    ///< float
    optimizer_state,  ///< moments
    gradient_leases,  ///< buckets of the micro-step in flight
    parameter_leases, ///< gathered units of stage 3, staging of scattered and adopted parameters
    wire,             ///< one bucket in the communication type, where it differs
    control,          ///< scalars of the step, reports, tables in the backend's memory
    scratch           ///< what the update of one whole parameter needs beside it
};

inline constexpr std::size_t buffer_kinds = 9;

constexpr char const* name_of(BufferKind kind) noexcept {
    constexpr std::array<char const*, buffer_kinds> names{
        "parameters",       "gradients", "master weights", "optimizer state", "gradient leases",
        "parameter leases", "wire",      "control",        "scratch"};
    return names[static_cast<std::size_t>(kind)];
}

/// @brief Where a backend takes its memory from. Derive from it to place buffers (pinned, huge
/// pages, a pool) or to count them.
///
/// Pointers are aligned to at least 128 bytes. Both functions may be called from any thread.
class MemoryResource {
public:
    MemoryResource() = default;
    MemoryResource(MemoryResource const&) = delete;
    MemoryResource& operator=(MemoryResource const&) = delete;
    virtual ~MemoryResource() = default;

    /// @throws std::bad_alloc when there is none.
    [[nodiscard]] virtual void* allocate(std::size_t bytes, BufferKind kind) = 0;

    /// @brief Takes back what `allocate` gave, with the same number of bytes and kind.
    virtual void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept = 0;
};

/// @brief The heap, with an account of the bytes handed out per kind.
class HostMemoryResource final : public MemoryResource {
public:
    static constexpr std::size_t alignment = 128; ///< of every allocation, in bytes

    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        void* memory = ::operator new(bytes, std::align_val_t{alignment});
        _allocated[static_cast<std::size_t>(kind)] += bytes;
        return memory;
    }

    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        ::operator delete(memory, std::align_val_t{alignment});
        _allocated[static_cast<std::size_t>(kind)] -= bytes;
    }

    /// @brief Bytes in use now.
    [[nodiscard]] std::size_t allocated_bytes(BufferKind kind) const noexcept {
        return _allocated[static_cast<std::size_t>(kind)];
    }

    /// @brief Of all kinds together.
    [[nodiscard]] std::size_t allocated_bytes() const noexcept {
        std::size_t sum = 0;
        for (auto const& bytes : _allocated) {
            sum += bytes;
        }
        return sum;
    }

private:
    std::array<std::atomic<std::size_t>, buffer_kinds> _allocated{};
};

} // namespace ZERO_NAMESPACE
