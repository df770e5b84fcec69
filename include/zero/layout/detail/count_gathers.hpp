#pragma once

#include "../../core/detail/namespace.hpp"
#include "../flat_layout.hpp"
#include "../gather_options.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the number of times that a step gathers each bucket. A bucket that stays gathered
/// from an earlier acquisition is not gathered again. O(acquired units times their buckets).
/// @param acquired_units the units acquired during the step, once per acquisition
[[nodiscard]] std::vector<std::size_t> count_gathers(FlatLayout const& layout,
                                                     std::size_t micro_steps,
                                                     std::span<std::size_t const> acquired_units,
                                                     GatherOptions const& gather);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "count_gathers.ipp"
#endif
