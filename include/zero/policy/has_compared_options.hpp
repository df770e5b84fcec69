#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"

#include <concepts>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief A policy whose options must be equal on all ranks. `static void add_to(Hash&, Options
/// const&)` adds these options. It also adds the name of the policy, if other policies have the
/// same options.
///
/// Optional; an optimizer may have `name` and `for_each_option` instead. Ranks with different
/// options get a LayoutMismatch. Without `add_to` they continue, with different results.
template <class P>
concept HasComparedOptions = requires(Hash& hash, typename P::Options const& options) {
    { P::add_to(hash, options) } -> std::same_as<void>;
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief A visitor of `for_each_option` that adds each option to a hash.
struct OptionHasher {
    Hash* hash;

    template <class T>
    void operator()(char const* /*name*/, T const& option) const noexcept {
        hash->add(option);
    }
};

/// @brief An optimizer that has a name and visits its options. The ranks compare all of them.
template <class P>
concept NamesOptions = requires(Hash& hash, typename P::Options const& options) {
    hash.add(P::name);
    P::for_each_option(options, OptionHasher{&hash});
};

/// @brief Returns a hash of the options that ranks compare. If the policy compares no options, it
/// is the hash of no values.
template <class P>
[[nodiscard]] std::uint64_t hash_of_options(typename P::Options const& options) noexcept {
    Hash hash;
    if constexpr (HasComparedOptions<P>) {
        P::add_to(hash, options);
    } else if constexpr (NamesOptions<P>) {
        hash.add(P::name);
        P::for_each_option(options, OptionHasher{&hash});
    }
    return hash.value();
}

} // namespace ZERO_NAMESPACE::detail
