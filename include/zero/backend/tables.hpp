#pragma once

#include "../core/float16.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace zero {

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

/// @brief Weights that the update reads and writes in one type and rounds to the parameter's.
template <class M, class P>
struct MasterPointers {
    M* master = nullptr;    ///< one for each element of the slice
    P* parameter = nullptr; ///< null: the parameter is its own master
};

/// @brief Weights in parts, as `SplitFloat` describes: the parameter is one of them.
struct SplitPointers {
    bfloat16* parameter = nullptr;      ///< the weight rounded to nearest
    std::uint16_t* remainder = nullptr; ///< the lower 16 bits of what is missing to the weight
    std::uint8_t* rounded_up = nullptr; ///< eight elements to a byte, the first in the lowest bit
};

/// @brief Parameters that are rounded stochastically and are their own masters.
template <class P>
struct StochasticPointers {
    P* parameter = nullptr;        ///< read, updated in float, and rounded to either neighbour
    std::uint64_t first_index = 0; ///< of all elements in registration order: counts the random numbers
    std::uint64_t key = 0;         ///< of the step; in a table of slices unset, see `UpdateDecision`
};

/// @brief The states of an optimizer, one array each.
template <std::size_t States, class S>
struct StatePointers {
    using Type = S;                  ///< what a state is stored in
    std::array<S*, States> states{}; ///< one pointer for each state, to as many elements as the slice has
};

/// @brief float16 states with a scale per block of 64, counted from the start of the slice.
template <std::size_t States>
struct ScaledStatePointers : StatePointers<States, float16> {
    std::array<float*, States> scales{}; ///< one pointer for each state, to a scale for each started block
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
    float* scratch = nullptr;    ///< for an optimizer of whole parameters, the same memory for every slice: what it leaves there is lost

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

/// @brief What the decision of a step leaves for the update, in the backend's memory.
struct UpdateDecision {
    float factor = 1.0F;          ///< multiplies every gradient
    bool skip = false;            ///< the update changes nothing
    std::uint64_t random_key = 0; ///< of this step's random numbers, where parameters are rounded stochastically
};

/// @brief Where the weights of a slice are, with what the decision of a step says about them.
template <class Weights>
constexpr Weights decided(Weights weights, UpdateDecision const& decision) noexcept {
    if constexpr (requires { weights.key; }) {
        weights.key = decision.random_key;
    }
    return weights;
}

} // namespace zero
