#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

/// @file
/// @brief Slices: the entries of the tables that the operations of a backend read and write. They
/// own no memory.

namespace ZERO_NAMESPACE {

/// @brief A slice of the gradients, as `inspect` and `count_zeros` read it.
template <class A>
struct InspectSlice {
    A const* values = nullptr;    ///< gradients, in the accumulation type
    std::size_t elements = 0;     ///< length in elements, any number
    std::int64_t first_index = 0; ///< index of the first element in registration order
};

/// @brief A slice and the norm it contributes to.
template <class A>
struct NormSlice {
    InspectSlice<A> part{}; ///< the slice
    std::size_t norm = 0;   ///< index of the norm
};

/// @brief A slice as the update reads and writes it.
/// @tparam Weights pointers to the weights: `MasterPointers`, `SplitPointers`, `StochasticPointers`
/// @tparam States pointers to the optimizer states: `StatePointers`, `ScaledStatePointers`,
/// or `StochasticStates` of either
template <class A, class Weights, class States>
struct UpdateSlice : Weights, States {
    A const* gradient = nullptr; ///< reduced gradients, before unscaling and clipping
    std::size_t elements = 0;    ///< length in elements, any number
    std::size_t group = 0; ///< row of the hyper-parameters: index of the group, or of the parameter
                           ///< if updates are counted for each parameter
    std::size_t rows = 0;  ///< rows, if the slice is a whole matrix; else 0
    float* scratch = nullptr; ///< scratch space for an optimizer of whole parameters, shared by all
                              ///< slices

    /// @brief The pointers to the weights.
    [[nodiscard]] constexpr Weights const& weights() const noexcept { return *this; }

    /// @brief The pointers to the states.
    [[nodiscard]] constexpr States const& all_states() const noexcept { return *this; }
};

/// @brief A piece of a tensor and its offset in a bucket, for flatten and unflatten.
template <class T>
struct CopySlice {
    T* tensor = nullptr;          ///< first element of the piece, in the tensor's memory
    std::size_t bucket_begin = 0; ///< offset of the piece in the bucket, in elements
    std::size_t elements = 0;     ///< length of the piece
};

} // namespace ZERO_NAMESPACE
