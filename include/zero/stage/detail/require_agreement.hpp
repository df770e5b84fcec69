#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "compared_option.hpp"
#include "gather_on_host.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief `gather(own, what, all)` sets `all` to the values of every rank, in rank order.
using GatherValues =
    FunctionRef<std::vector<std::uint64_t> const&, char const*, std::vector<std::uint64_t>&>;

/// @brief The comparison itself, which depends on no communicator.
[[gnu::cold]] void require_agreement(FlatLayout const& layout, std::span<DType const> types,
                                     List<ComparedOption> const& options, GatherValues gather);

/// @brief Compares layouts and options of all ranks. The message names the first parameter that
/// differs and both sides, or the options. Collective; waits.
/// @param types parameter types by index
/// @param options the same names on every rank
/// @throws LayoutMismatch on every rank
template <class Communicator>
[[gnu::cold]] void
require_agreement(FlatLayout const& layout, std::span<DType const> types,
                  List<ComparedOption> const& options, Communicator& communicator,
                  typename Communicator::Backend::Queue queue, MemoryResource& memory) {
    using Values = std::vector<std::uint64_t>;
    auto const gather = [&](Values const& own, char const* what, Values& all) {
        all = gather_on_host(communicator, queue, memory, own, what);
    };
    require_agreement(layout, types, options, GatherValues(gather));
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "require_agreement.ipp"
#endif
