#pragma once

#include "validate_memory.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/text.hpp"
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
    std::byte const* begin;
    std::size_t elements;
    DType type;
    std::string const* name;

    [[nodiscard]] std::byte const* end() const { return begin + elements * size_of(type); }

    /// Describes the range: "'a' has [0x1000, 0x1014), 5 elements of float32".
    [[nodiscard]] std::string range() const {
        return text({'\'', *name, "' has [", hexadecimal(begin), ", ", hexadecimal(end()), "), ",
                     elements, " elements of ", name_of(type)});
    }
};

inline Claim claim(void const* memory, std::size_t elements, DType type, std::string const& name) {
    return {static_cast<std::byte const*>(memory), elements, type, &name};
}

/// @throws InvalidArgument naming two parameters whose memory overlaps, and both ranges
/// @param relation the memory that the two parameters share, for the message
/// @param may_coincide whether two parameters may begin at the same address, because their memory
/// is only read; other overlaps are mistakes then as well
inline void refuse_overlaps(List<Claim> const& claims, char const* relation, char const* remedy,
                            bool may_coincide = false) {
    std::vector<std::uint64_t> begins;
    for (Claim const& claim : claims) {
        begins.push_back(reinterpret_cast<std::uintptr_t>(claim.begin));
    }
    std::vector<std::size_t> const order = order_by(begins);
    for (std::size_t index = 1; index < order.size(); ++index) {
        Claim const& before = claims[order[index - 1]];
        Claim const& after = claims[order[index]];
        if (after.begin < before.end() && !(may_coincide && after.begin == before.begin)) {
            throw_error<InvalidArgument>(
                {"zero: parameters '", *before.name, "' and '", *after.name, "' share ", relation,
                 ": ", before.range(), "; ", after.range(), ". ", remedy,
                 " Where the ranges should not meet, one has a wrong type or size."});
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

/// Refuses values that would be read from nowhere, or memory that would be ignored.
/// @throws InvalidArgument
inline void refuse_ignored(AnyParameter const& parameter, Storage storage, int stage) {
    std::string const& name = parameter.spec.name;
    bool const is_owned = storage == Storage::owned;
    if (!is_owned && parameter.data == nullptr) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name, "' has ", parameter.spec.elements,
             " elements but its pointer 'data' is null; only owned parameters may leave it out."});
    }
    if (is_owned && parameter.data != nullptr) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name, "' has memory in 'data', which would never change: ",
             (stage < 3 ? "with Storage::owned the engine trains a copy. Give initial values as "
                          "'initial', or set .storage to zero::Storage::scattered or adopted to "
                          "train 'data' itself."
                        : "stage 3 keeps shards, and the model reads parameters through acquire(). "
                          "Give initial values as 'initial'.")});
    }
    if (!is_owned && (parameter.initialise || parameter.initial != nullptr)) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name, "' has ",
             (parameter.initialise ? "an initialiser" : "initial values"),
             ", which would be ignored, because the parameter lies in the caller's memory; fill "
             "that memory instead."});
    }
    if (parameter.initial != nullptr && parameter.initialise) {
        throw_error<InvalidArgument>({"zero: parameter '", name,
                                      "' has initial values, which would be ignored, "
                                      "and an initialiser; give one of the two."});
    }
    if (parameter.is_deterministic && parameter.initial != nullptr) {
        throw_error<InvalidArgument>({"zero: parameter '", name,
                                      "' is deterministic, so each owner fills its own part, but "
                                      "has values in 'initial', which only rank 0 reads; give "
                                      "'initialise', or leave 'is_deterministic' out."});
    }
    if (parameter.is_deterministic && !is_owned) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name,
             "' is deterministic, which would be ignored, because it lies in the caller's memory "
             "and has no initialiser; leave 'is_deterministic' out."});
    }
    if (parameter.gradient != nullptr && !parameter.spec.trainable) {
        throw_error<InvalidArgument>(
            {"zero: frozen parameter '", name,
             "' has memory for its gradient, which would be ignored; leave 'gradient' out, or "
             "register it as trainable."});
    }
}

ZERO_COLD_INLINE void validate_memory(std::span<AnyParameter const> parameters, Storage storage,
                                      int stage) {
    List<Claim> values;
    List<Claim> gradients;
    bool const is_owned = storage == Storage::owned;
    for (auto const& parameter : parameters) {
        ParameterSpec const& spec = parameter.spec;
        if (spec.elements == 0) {
            continue;
        }
        refuse_ignored(parameter, storage, stage);
        void const* const value = storage == Storage::owned ? parameter.initial : parameter.data;
        refuse_misaligned(value, size_of(parameter.type), spec.name);
        refuse_misaligned(parameter.gradient, size_of(parameter.gradient_type), spec.name);
        if (value != nullptr) {
            values.push_back(claim(value, spec.elements, parameter.type, spec.name));
        }
        if (parameter.gradient != nullptr && !is_owned && parameter.gradient == value) {
            throw_error<InvalidArgument>({"zero: the values and the gradient of '", spec.name,
                                          "' are the same memory, at ", hexadecimal(value),
                                          "; give the gradient memory of its own."});
        }
        if (parameter.gradient != nullptr) {
            gradients.push_back(
                claim(parameter.gradient, spec.elements, parameter.gradient_type, spec.name));
        }
    }
    constexpr char const* register_once = "Register a tied parameter once and list all its units.";
    refuse_overlaps(values, is_owned ? "the memory of initial values" : "parameter memory",
                    register_once, is_owned);
    refuse_overlaps(gradients, "gradient memory", register_once);
    if (!is_owned) { // otherwise values are read during construction only
        for (Claim const& gradient : gradients) {
            values.push_back(gradient);
        }
        refuse_overlaps(values, "memory, one for its values and one for its gradient",
                        "Give each its own.");
    }
}

} // namespace ZERO_NAMESPACE::detail
