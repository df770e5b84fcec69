#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../layout/parameter_spec.hpp"
#include "initialiser.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief One parameter as the caller registers it; nothing of the caller's model has to change for
/// it.
///
/// Register in order of use in the forward pass. Names, sizes, units, groups and trainability are
/// the same on every rank; of the values those of rank 0 count, which are broadcast.
/// @tparam T type of the parameters, @tparam G type of the gradients
template <class T, class G = T>
struct Parameter {
    std::string name;  ///< unique
    T* data = nullptr; ///< owned: initial values, read during construction (null: zeros); otherwise
                       ///< the parameter's memory
    std::size_t elements = 0; ///< any number, 0 included
    std::vector<std::size_t> units{
        0}; ///< who uses it, numbered in order of use from 0; several for a tied parameter
    std::size_t group = 0; ///< parameter group: one that options.groups lists; if it lists none,
                           ///< below the number of parameters
    bool trainable = true; ///< false: frozen, without gradient and optimizer state
    std::size_t rows = 0;  ///< of the matrix that its elements are, row by row; 0: it is no matrix.
                           ///< For optimizers of whole parameters
    G* gradient = nullptr; ///< the caller's memory for its gradient, which counts in micro-steps
                           ///< that call `gradients` or `gradients_ready`; null: in the engine's
                           ///< buckets, without a copy (and always when frozen)
    /// Fills elements [begin, begin + values.size()) of an owned parameter; called on rank 0
    /// instead of reading `data`, which is null then. What it throws leaves the constructor, and
    /// the other ranks get Aborted with its text.
    Initialiser<T> initialise{};
};

/// @brief A parameter of whatever type: what a model with several parameter types registers, and
/// what every engine works on.
struct AnyParameter {
    /// @brief Forgets the type; numbers and pointers are kept.
    template <class T, class G>
    AnyParameter(Parameter<T, G> const& parameter) // NOLINT(google-explicit-constructor): lists of
                                                   // parameters of several types
        : spec{parameter.name,  parameter.elements,  parameter.units,
               parameter.group, parameter.trainable, 0,
               parameter.rows},
          type(dtype_of<T>()), gradient_type(dtype_of<G>()), data(parameter.data),
          gradient(parameter.gradient) {
        if (parameter.initialise) {
            initialise = [fill = parameter.initialise](std::size_t begin,
                                                       std::span<std::byte> bytes) {
                fill(begin,
                     std::span<T>(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)));
            };
        }
    }

    ParameterSpec spec;                  ///< what the geometry has to know
    DType type;                          ///< of the parameter
    DType gradient_type;                 ///< of its gradient
    void* data;                          ///< as in `Parameter`
    void* gradient;                      ///< as in `Parameter`
    Initialiser<std::byte> initialise{}; ///< fills memory of the type
};

} // namespace ZERO_NAMESPACE
