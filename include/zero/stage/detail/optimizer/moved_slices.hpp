#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../ops/block_scale.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../common/engine_context.hpp"

#include <cstddef>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Moves pointers of a slice to a later element of it.
/// @param elements a multiple of 64
template <class M, class P>
void skip(MasterPointers<M, P>& weights, std::size_t elements) noexcept {
    weights.master += elements;
    weights.parameter += weights.parameter == nullptr ? 0 : elements;
}

inline void skip(SplitPointers& weights, std::size_t elements) noexcept {
    constexpr std::size_t bits_in_byte = 8;
    weights.parameter += elements;
    weights.remainder += elements;
    weights.rounded_up += elements / bits_in_byte;
}

template <class P>
void skip(StochasticPointers<P>& weights, std::size_t elements) noexcept {
    weights.parameter += elements;
    weights.first_index += elements;
}

template <std::size_t States, class S>
void skip(StatePointers<States, S>& states, std::size_t elements) noexcept {
    for (S*& state : states.states) {
        state += elements;
    }
}

template <std::size_t States, class S>
void skip(ScaledStatePointers<States, S>& states, std::size_t elements) noexcept {
    skip(static_cast<StatePointers<States, S>&>(states), elements);
    for (float*& scale : states.scales) {
        scale += elements / ops::scaled_block_elements;
    }
}

template <class Pointers>
void skip(StochasticStates<Pointers>& states, std::size_t elements) noexcept {
    skip(static_cast<Pointers&>(states), elements);
    states.first_index += elements;
}

/// @brief Returns the part of a slice that begins at an element.
/// @param begin a multiple of 64
template <class A, class Weights, class States>
[[nodiscard]] UpdateSlice<A, Weights, States>
part_of(UpdateSlice<A, Weights, States> slice, std::size_t begin, std::size_t elements) noexcept {
    slice.gradient += begin;
    skip(static_cast<Weights&>(slice), begin);
    skip(static_cast<States&>(slice), begin);
    slice.elements = elements;
    return slice;
}

/// @brief Memory that an update reads or writes, and the copy of it that it uses instead.
struct MovedRange {
    std::byte* own;
    std::byte* copy;
    std::size_t bytes;
};

/// @brief Rounds up to whole cache lines.
[[nodiscard]] constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
    constexpr std::size_t line = 64;
    return (bytes + line - 1) / line * line;
}

/// @brief Returns the number of groups of an engine, each of which has a row.
template <class Config>
[[nodiscard, gnu::cold]] std::size_t groups_of(EngineContext<Config> const& context) {
    std::size_t groups = larger<std::size_t>(1, context.options->groups.size());
    for (auto const& parameter : context.layout->parameters()) {
        groups = larger(groups, parameter.group + 1);
    }
    return groups;
}

/// @brief Redirects an address to the copy, and notes the range. Neighbours are one range.
/// @param free the copy; moves to its end
template <class T>
void redirect(T*& address, std::size_t elements, std::byte*& free, List<MovedRange>& ranges) {
    // gradients are written by their reduction, not through slices
    auto* const own = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(address));
    std::size_t const bytes = elements * sizeof(T);
    MovedRange* const last = ranges.empty() ? nullptr : &ranges[ranges.size() - 1];
    if (last != nullptr && last->own + last->bytes == own && last->copy + last->bytes == free) {
        last->bytes += bytes;
    } else {
        ranges.push_back({own, free, bytes});
    }
    address = reinterpret_cast<T*>(free);
    free += bytes;
}

/// @brief Redirects the parameters of a slice.
template <MasterForm form, class Slice>
void redirect_parameters(Slice& slice, std::byte*& free, List<MovedRange>& ranges) {
    if constexpr (form == MasterForm::own) {
        redirect(slice.master, slice.elements, free, ranges);
    } else {
        redirect(slice.parameter, slice.elements, free, ranges);
    }
}

} // namespace ZERO_NAMESPACE::detail
