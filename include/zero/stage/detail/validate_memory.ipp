#pragma once

#include "validate_memory.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../../layout/detail/order_by.hpp"
#include "../../layout/parameter_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Memory that belongs to one parameter, for the search for overlaps.
struct Claim {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::string const* name;
};

inline Claim claim(void const* memory, std::size_t bytes, std::string const& name) {
    auto const begin = reinterpret_cast<std::uintptr_t>(memory);
    return {begin, begin + bytes, &name};
}

/// @throws InvalidArgument naming two parameters whose memory overlaps
/// @param relation of the two parameters, in the message
inline void refuse_overlaps(List<Claim> const& claims, char const* relation, char const* remedy) {
    std::vector<std::uint64_t> begins;
    for (Claim const& claim : claims) {
        begins.push_back(claim.begin);
    }
    std::vector<std::size_t> const order = order_by(begins);
    for (std::size_t index = 1; index < order.size(); ++index) {
        Claim const& before = claims[order[index - 1]];
        Claim const& after = claims[order[index]];
        if (after.begin < before.end) {
            throw_error<InvalidArgument>({"zero: parameters '", *before.name, "' and '",
                                          *after.name, "' share ", relation, "; ", remedy});
        }
    }
}

/// @throws InvalidArgument
inline void refuse_misaligned(void const* memory, std::size_t bytes, std::string const& name) {
    if (reinterpret_cast<std::uintptr_t>(memory) % bytes != 0) {
        throw_error<InvalidArgument>({"zero: the memory of parameter '", name,
                                      "' does not begin at a multiple of its elements' ", bytes,
                                      " bytes; align it."});
    }
}

ZERO_COLD_INLINE void validate_memory(std::span<AnyParameter const> parameters, Storage storage) {
    List<Claim> values;
    List<Claim> gradients;
    for (auto const& parameter : parameters) {
        ParameterSpec const& spec = parameter.spec;
        if (spec.elements == 0) {
            continue;
        }
        if (storage != Storage::owned && parameter.data == nullptr) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' has ", spec.elements,
                 " elements but its pointer is null; only owned parameters may leave it out."});
        }
        if (storage != Storage::owned && parameter.initialise) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name,
                 "' has an initialiser, which would be ignored, because the parameter lies in the "
                 "caller's memory; fill that memory instead."});
        }
        if (parameter.data != nullptr && parameter.initialise) {
            throw_error<InvalidArgument>({"zero: parameter '", spec.name,
                                          "' has initial values, which would be ignored, "
                                          "and an initialiser; give one of the two."});
        }
        if (parameter.gradient != nullptr && !spec.trainable) {
            throw_error<InvalidArgument>(
                {"zero: frozen parameter '", spec.name,
                 "' has memory for its gradient, which would be ignored; leave 'gradient' out, or "
                 "register it as trainable."});
        }
        refuse_misaligned(parameter.data, size_of(parameter.type), spec.name);
        refuse_misaligned(parameter.gradient, size_of(parameter.gradient_type), spec.name);
        if (parameter.data != nullptr) {
            values.push_back(
                claim(parameter.data, spec.elements * size_of(parameter.type), spec.name));
        }
        if (parameter.gradient != nullptr) {
            gradients.push_back(claim(parameter.gradient,
                                      spec.elements * size_of(parameter.gradient_type), spec.name));
        }
    }
    constexpr char const* register_once = "register a tied parameter once and list all its units.";
    refuse_overlaps(values, "parameter memory", register_once);
    refuse_overlaps(gradients, "gradient memory", register_once);
    if (storage != Storage::owned) { // otherwise values are read during construction only
        for (Claim const& gradient : gradients) {
            values.push_back(gradient);
        }
        refuse_overlaps(values, "memory, one for its values and one for its gradient",
                        "give each its own.");
    }
}

} // namespace ZERO_NAMESPACE::detail
