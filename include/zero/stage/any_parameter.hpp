#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../layout/detail/shape.hpp"
#include "../layout/parameter_spec.hpp"
#include "initialiser.hpp"
#include "parameter.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief A parameter of any type. A model with several parameter types registers a list of these,
/// and every engine works on them.
struct AnyParameter {
    /// @brief Erases the type; numbers and pointers are kept. Implicit, for lists of parameters of
    /// several types.
    template <class T, class G>
    AnyParameter(Parameter<T, G> const& parameter) // NOLINT(google-explicit-constructor)
        : spec{parameter.name,
               detail::elements_of(parameter.elements, parameter.shape),
               parameter.units,
               parameter.group,
               parameter.trainable,
               0,
               parameter.update == Update::elements
                   ? parameter.rows
                   : detail::rows_of(parameter.rows, parameter.shape),
               parameter.gradient != nullptr ? GradientMemory::caller : GradientMemory::engine,
               parameter.shape,
               parameter.tile,
               !parameter.update && parameter.rows != 0 ? Update::matrix : parameter.update},
          type(dtype_of<T>()), gradient_type(dtype_of<G>()), initial(parameter.initial),
          data(parameter.data), gradient(parameter.gradient),
          is_deterministic(parameter.is_deterministic) {
        if (parameter.initialise) {
            initialise = [fill = parameter.initialise](std::size_t begin,
                                                       std::span<std::byte> bytes) {
                fill(begin,
                     std::span<T>(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)));
            };
        }
    }

    ParameterSpec spec;                  ///< the properties on which the layout depends
    DType type;                          ///< type of the parameter
    DType gradient_type;                 ///< type of its gradient
    void const* initial;                 ///< as in `Parameter`
    void* data;                          ///< as in `Parameter`
    void* gradient;                      ///< as in `Parameter`
    Initialiser<std::byte> initialise{}; ///< as in `Parameter`, for the bytes of the values
    bool is_deterministic;               ///< as in `Parameter`
};

} // namespace ZERO_NAMESPACE
