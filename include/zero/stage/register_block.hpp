#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "parameter.hpp"

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Returns the registrations of parameters that are one after the other in one block, and
/// their gradients in another: for trainers that keep a pointer and a list of sizes. Use them with
/// `.storage = Storage::adopted, .adopted_block = {parameters, total}`.
///
/// All parameters are in unit 0 and in group 0; change the list where that does not fit.
/// @param parameters first element of the block
/// @param gradients first element of the gradients, in the same order; null: they are in the
/// engine's buckets
/// @param sizes elements of each parameter; a wrong one shifts all later parameters, and
/// `describe(engine)` reports elements of the block that are in none
/// @param names one per parameter, in the same order; any sized list of texts
/// @throws InvalidArgument if there are not as many names as sizes
template <class T, class G, class Names>
[[nodiscard]] std::vector<Parameter<T, G>> register_block(T* parameters, G* gradients,
                                                          std::span<std::size_t const> sizes,
                                                          Names const& names) {
    if (std::size(names) != sizes.size()) {
        detail::throw_error<InvalidArgument>({"zero: register_block() got ", sizes.size(),
                                              " sizes and ", std::size(names),
                                              " names; give one name for each size."});
    }
    std::vector<Parameter<T, G>> registrations;
    std::size_t begin = 0;
    auto name = std::begin(names);
    for (std::size_t const elements : sizes) {
        Parameter<T, G>& parameter = registrations.emplace_back();
        parameter.name = std::string(*name++);
        parameter.data = parameters + begin;
        parameter.elements = elements;
        parameter.gradient = gradients == nullptr ? nullptr : gradients + begin;
        begin += elements;
    }
    return registrations;
}

/// @brief The same for gradients in the engine's buckets, in the type of the parameters. (Name both
/// types where they differ: `register_block<bfloat16, float>(parameters, nullptr, sizes, names)`.)
template <class T, class Names>
[[nodiscard]] std::vector<Parameter<T>> register_block(T* parameters, std::nullptr_t,
                                                       std::span<std::size_t const> sizes,
                                                       Names const& names) {
    return register_block(parameters, static_cast<T*>(nullptr), sizes, names);
}

} // namespace ZERO_NAMESPACE
