#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace zero {

/// @brief Part of one parameter inside one rank's extent, as the norm reads it.
template <class A>
struct InspectSlice {
    A const* values = nullptr;
    std::size_t elements = 0;
    std::int64_t first_index = 0; ///< of all elements in registration order
};

/// @brief Part of one parameter inside one rank's extent, and which of several norms it belongs to.
template <class A>
struct NormSlice {
    InspectSlice<A> part{};
    std::size_t norm = 0;
};

/// @brief Part of one parameter inside one rank's extent, as the update reads and writes it.
template <std::size_t States, class A, class M, class P>
struct UpdateSlice {
    A const* gradient = nullptr;
    M* master = nullptr;
    P* parameter = nullptr;               ///< null: the parameter is its own master
    std::array<float*, States> states{};
    std::size_t elements = 0;
    std::size_t group = 0;
};

/// @brief A part of a tensor and where it stands in a bucket, for flatten and unflatten.
template <class T>
struct CopySlice {
    T* tensor = nullptr;
    std::size_t bucket_begin = 0;
    std::size_t elements = 0;
};

/// @brief What the decision of a step leaves for the update, in the backend's memory.
struct UpdateDecision {
    float factor = 1.0F; ///< multiplies every gradient
    bool skip = false;
};

} // namespace zero
