#pragma once

#include "uniform_cuts.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::vector<std::size_t> uniform_cuts(std::size_t world, std::size_t elements) {
    std::vector<std::size_t> cuts;
    for (std::size_t peer = 0; peer <= world; ++peer) {
        cuts.push_back(peer * elements);
    }
    return cuts;
}

} // namespace ZERO_NAMESPACE::detail
