#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../host/event.hpp"
#include "../traffic_count.hpp"
#include "call_signature.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Adds one piece of each rank, in rank order: `out[i]` = the sum of `pieces[rank][i]`, or
/// `out[i]` plus that sum.
using SumPieces = void (*)(void* out, void const* const* pieces, int world, std::size_t elements);

/// @brief The sum of an extent as the type of the caller's elements makes it.
struct ExtentSum {
    SumPieces add = nullptr;
    std::size_t out_bytes = 0;  ///< size of an element of the result
    bool is_by_library = false; ///< the transport adds, and `add` only stores
};

/// @brief The memory of a collective between processes.
struct CollectiveMemory {
    void const* send;
    void* receive;
    std::size_t element_bytes;
    std::span<std::size_t const> cuts; ///< empty for operations that take none
    ExtentSum sum;
};

/// @brief One pending collective: the arguments that its command reads. The storage of the cuts is
/// reused when `done` is complete.
struct Flight {
    CollectiveKind kind{};
    std::size_t element_bytes = 0;
    std::size_t count = 0;  ///< elements of all extents
    std::size_t detail = 0; ///< as of a CollectiveCall: of a broadcast and of integers
    void const* send = nullptr;
    void* receive = nullptr;
    ExtentSum sum{};
    CallSignature::Words signature{};
    List<std::size_t> cuts; ///< W + 1, for operations that take cuts
    host::Event done{};
};

} // namespace ZERO_NAMESPACE::detail
