#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Part of one parameter inside one rank's extent, as the norm reads it.
template <class A>
struct InspectSlice {
    A const* values = nullptr;    ///< of the accumulation type
    std::size_t elements = 0;     ///< any number
    std::int64_t first_index = 0; ///< of all elements in registration order
};

/// @brief Part of one parameter inside one rank's extent, and which of several norms it belongs to.
template <class A>
struct NormSlice {
    InspectSlice<A> part{}; ///< what is read
    std::size_t norm = 0;   ///< number of the norm that it is added to
};

/// @brief Part of one parameter inside one rank's extent, as the update reads and writes it.
/// @tparam Weights where the weights are: `MasterPointers`, `SplitPointers`, `StochasticPointers`
/// @tparam States where the optimizer's states are: `StatePointers`, `ScaledStatePointers`
template <class A, class Weights, class States>
struct UpdateSlice : Weights, States {
    A const* gradient = nullptr; ///< reduced, before it is unscaled and clipped
    std::size_t elements = 0;    ///< any number
    std::size_t group = 0;       ///< number of the parameter group
    std::size_t rows = 0;        ///< of the matrix, when the slice is a whole one; 0: it is none
    float* scratch = nullptr; ///< for an optimizer of whole parameters, the same memory for every
                              ///< slice: what it leaves there is lost

    /// @brief Only where the weights are.
    [[nodiscard]] constexpr Weights const& weights() const noexcept { return *this; }

    /// @brief Only where the states are.
    [[nodiscard]] constexpr States const& all_states() const noexcept { return *this; }
};

/// @brief A part of a tensor and where it stands in a bucket, for flatten and unflatten.
template <class T>
struct CopySlice {
    T* tensor = nullptr;          ///< the first element of the part, in the tensor's memory
    std::size_t bucket_begin = 0; ///< where the part begins in the bucket, in elements
    std::size_t elements = 0;     ///< of the part
};

} // namespace ZERO_NAMESPACE
