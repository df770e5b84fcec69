#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `body(rank)` for each rank, on a thread of its own except for rank 0, and joins all
/// threads. Used by `run_group`.
/// @param release called with the rank, a cause and whether the rank has thrown, when it has
/// finished or thrown; does not throw
/// @throws the first exception of a rank that is not a consequence of another one
void run_threads(std::size_t world, FunctionRef<std::size_t> body,
                 FunctionRef<std::size_t, std::string_view, bool> release);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "run_threads.ipp"
#endif
