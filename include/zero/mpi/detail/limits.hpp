#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::mpi::detail {

inline constexpr std::size_t scratch_bytes_per_rank = 1024;              ///< minimum
inline constexpr std::size_t most_scratch_bytes = std::size_t{1} << 30U; ///< a message is an int

} // namespace ZERO_NAMESPACE::mpi::detail
