#pragma once

#include "assign_types.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void assign_types(std::span<AnyParameter> parameters,
                                   std::span<std::array<DType, 2> const> types) {
    for (AnyParameter& parameter : parameters) {
        std::array<DType, 2> const wanted{parameter.type, parameter.gradient_type};
        std::size_t& type = parameter.spec.type;
        while (type < types.size() && types[type] != wanted) {
            ++type;
        }
        if (type == types.size()) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' is ", name_of(parameter.type),
                 " with a ", name_of(parameter.gradient_type),
                 " gradient, which is none of the types of this composition; name its type in "
                 "zero::Parameters, and its gradient's in zero::GradientReduction."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
