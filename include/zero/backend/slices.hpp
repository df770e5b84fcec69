#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/storage_types.hpp"

#include <array>
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
    [[nodiscard]] ZERO_HOST_DEVICE constexpr Weights const& weights() const noexcept {
        return *this;
    }

    /// @brief The pointers to the states.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr States const& all_states() const noexcept {
        return *this;
    }
};

/// @brief A piece of a tensor and its offset in a bucket, for flatten and unflatten.
template <class T>
struct CopySlice {
    T* tensor = nullptr;          ///< first element of the piece, in the tensor's memory
    std::size_t bucket_begin = 0; ///< offset of the piece in the bucket, in elements
    std::size_t elements = 0;     ///< length of the piece
};

/// @brief A piece of a bucket that travels in codes.
struct CodedSlice {
    std::size_t bucket_begin = 0; ///< offset of the piece in the bucket, in elements
    std::size_t block = 0;        ///< number of its first block of codes
    std::size_t elements = 0;     ///< length of the piece
};

/// @brief What `ErrorFeedback` keeps of a bucket, and how.
/// @tparam E float, or `std::uint8_t` for errors in codes
template <class E>
struct CodedErrors {
    E* errors = nullptr;           ///< of the bucket, by element or by block
    float const* factor = nullptr; ///< multiplies the old errors, in backend memory; null: 1
    float beta = 0.0F;             ///< the part of an old error in the new one
};

/// @brief The codes of one extent from all ranks, one after another, as an exchange receives them.
struct CodedPieces {
    std::size_t ranks = 0; ///< W
    std::size_t bytes = 0; ///< of the codes from each rank
};

/// @brief Non-owning pointers to the optimizer states of a slice, one array per state.
template <std::size_t States, class S>
struct StatePointers {
    using Type = S;                  ///< storage type of a state
    std::array<S*, States> states{}; ///< one array per state, as long as the slice
};

/// @brief Pointers to float16 or power8 states with one scale per block of 64. Blocks are
/// counted from the start of the slice.
template <std::size_t States, class S = float16>
struct ScaledStatePointers : StatePointers<States, S> {
    std::array<float*, States> scales{}; ///< one array per state, with one scale per block of 64,
                                         ///< the last of which may be shorter
};

/// @brief Pointers to states in 16 or 8 bits that are rounded stochastically.
/// @tparam Pointers `StatePointers` or `ScaledStatePointers`
template <class Pointers>
struct StochasticStates : Pointers {
    std::uint64_t first_index = 0; ///< index of the first element in registration order: the
                                   ///< counter of its random numbers
    std::uint64_t key = 0;         ///< key of the step; unset in a table of slices, see `decided`
};

} // namespace ZERO_NAMESPACE

/// @file
/// @brief Non-owning pointers to the weights of a slice, one type per `MasterForm`.

namespace ZERO_NAMESPACE {

/// @brief Weights that the update reads and writes in type M and rounds to the parameter type P.
template <class M, class P>
struct MasterPointers {
    M* master = nullptr;    ///< master weights, one per element of the slice
    P* parameter = nullptr; ///< null if the parameter is its own master
};

/// @brief Weights that are split as in `SplitFloat`. The parameter is the upper half.
struct SplitPointers {
    bfloat16* parameter = nullptr;      ///< the weight, rounded to nearest
    std::uint16_t* remainder = nullptr; ///< lower 16 bits of weight minus parameter, as integers
    std::uint8_t* rounded_up = nullptr; ///< one bit per element, the first in the lowest bit
};

/// @brief Parameters that are their own masters and are rounded stochastically.
template <class P>
struct StochasticPointers {
    P* parameter = nullptr;        ///< read, updated in float, and rounded to either neighbour
    std::uint64_t first_index = 0; ///< index of the first element in registration order: the
                                   ///< counter of its random number
    std::uint64_t key = 0;         ///< key of the step; unset in a table of slices, see `decided`
};

} // namespace ZERO_NAMESPACE
