#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/size_capped_bucketer.hpp"
#include "../../layout/unit_bucketer.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The bucketer of a stage that names none: the partitioner's own, if it requires one.
template <int N, class Partitioner>
struct DefaultBucketer {
    using type = std::conditional_t<N == 3, UnitBucketer, SizeCappedBucketer>;
};

template <int N, class Partitioner>
    requires requires { typename Partitioner::RequiredBucketer; }
struct DefaultBucketer<N, Partitioner> {
    using type = typename Partitioner::RequiredBucketer;
};

} // namespace ZERO_NAMESPACE::detail
