#pragma once

#include <zero/core/convert.hpp>
#include <zero/core/host_device.hpp>

#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace gpt {

// The model computes in `Real` (float; double in the gradient check). Weights and gradients are
// stored as `Stored`, which may be a two-byte type. Only these functions convert between the two.

template <class Real, class Stored>
ZERO_HOST_DEVICE constexpr Real widen(Stored value) noexcept {
    if constexpr (std::floating_point<Stored>) {
        return static_cast<Real>(value);
    } else {
        return static_cast<Real>(zero::to_float(value));
    }
}

template <class Stored, class Real>
ZERO_HOST_DEVICE constexpr Stored narrow(Real value) noexcept {
    if constexpr (std::floating_point<Stored>) {
        return static_cast<Stored>(value);
    } else {
        return zero::from_float<Stored>(static_cast<float>(value));
    }
}

/// @brief Copies stored weights into the memory with which the model computes.
template <class Real, class Stored>
void load(std::span<Stored const> from, Real* to) noexcept {
    if constexpr (std::is_same_v<Real, Stored>) {
        if (!from.empty()) {
            std::memcpy(to, from.data(), from.size_bytes());
        }
    } else {
        for (std::size_t index = 0; index < from.size(); ++index) {
            to[index] = widen<Real>(from[index]);
        }
    }
}

/// @brief Adds a gradient to the stored one: `to = Stored(Real(to) + from)`, one rounding per
/// element.
template <class Real, class Stored>
void add_to(std::span<Stored> to, Real const* from) noexcept {
    for (std::size_t index = 0; index < to.size(); ++index) {
        to[index] = narrow<Stored>(widen<Real>(to[index]) + from[index]);
    }
}

/// @brief Returns the memory of a parameter from either form of source: `source(index)` or
/// `source[index]`.
template <class Source>
auto span_of(Source&& source, std::size_t parameter_index) {
    if constexpr (std::invocable<Source&, std::size_t>) {
        return std::span(source(parameter_index));
    } else {
        return std::span(source[parameter_index]);
    }
}

/// @brief Returns the memory of a parameter as read-only memory.
template <class Source>
auto const_span_of(Source&& source, std::size_t parameter_index) {
    auto const values = span_of(source, parameter_index);
    return std::span<std::add_const_t<typename decltype(values)::element_type>>(values);
}

} // namespace gpt
