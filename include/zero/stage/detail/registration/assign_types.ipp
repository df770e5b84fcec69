#pragma once

#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/detail/partition/order_by.hpp"
#include "make_stage_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

ZERO_COLD_INLINE std::vector<std::string>
unused_registrations(FlatLayout const& layout, std::vector<bool> const& groups, bool has_matrices) {
    constexpr std::size_t most = 8; // names in a line
    std::vector<std::string> unused;
    auto const add = [&](char const* before, char const* after, auto const& is_listed) {
        std::size_t count = 0;
        std::string names;
        for (ParameterSpec const& spec : layout.parameters()) {
            if (is_listed(spec) && ++count <= most + 1) {
                names += count > most ? ", ..." : text({count == 1 ? "'" : ", '", spec.name, '\''});
            }
        }
        if (count != 0) {
            unused.push_back(text(
                {before, count, count == 1 ? " parameter" : " parameters", after, names, ')'}));
        }
    };
    add("", " without elements (", [](ParameterSpec const& spec) { return spec.elements == 0; });
    if (!has_matrices) {
        add("Update::matrix of ", ", which this optimizer updates element by element (",
            [&](ParameterSpec const& spec) {
                return spec.update == Update::matrix
                       || (!spec.update && spec.group < groups.size() && groups[spec.group]);
            });
    }
    return unused;
}

ZERO_COLD_INLINE void find_gradient_block(std::vector<ParameterSpec>& specs,
                                          std::span<AnyParameter const> parameters,
                                          std::span<std::size_t const> offsets,
                                          std::size_t element_bytes) {
    auto const is_sent = [&](std::size_t index) {
        return specs[index].trainable && specs[index].elements != 0;
    };
    std::uintptr_t block = 0; // address of the gradient at offset 0
    for (std::size_t index = 0; index < specs.size(); ++index) {
        auto const gradient = reinterpret_cast<std::uintptr_t>(parameters[index].gradient);
        std::uintptr_t const begin = gradient - offsets[index] * element_bytes;
        block = block == 0 && is_sent(index) ? begin : block;
        if (is_sent(index) && (gradient == 0 || begin != block)) {
            return;
        }
    }
    for (std::size_t index = 0; index < specs.size(); ++index) {
        specs[index].gradient = is_sent(index) ? GradientMemory::block : specs[index].gradient;
    }
}

ZERO_COLD_INLINE std::vector<std::size_t> offsets_in_block(std::span<AnyParameter const> parameters,
                                                           void const* block, std::size_t elements,
                                                           std::size_t element_bytes) {
    auto const block_begin = reinterpret_cast<std::uintptr_t>(block);
    std::vector<std::size_t> offsets;
    for (auto const& parameter : parameters) {
        auto const begin = reinterpret_cast<std::uintptr_t>(parameter.data);
        std::size_t const offset =
            parameter.spec.elements == 0 ? 0 : (begin - block_begin) / element_bytes;
        bool const is_inside = begin >= block_begin && offset <= elements
                               && parameter.spec.elements <= elements - offset;
        if (parameter.spec.elements != 0 && !is_inside) {
            bool const begins_inside = begin >= block_begin && offset < elements;
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' does not lie inside adopted_block: ",
                 (begins_inside
                      ? text({"it begins at element ", offset, " and has ", parameter.spec.elements,
                              " elements, but the block has ", elements})
                      : text({"it begins at ", hexadecimal(parameter.data), ", and the block of ",
                              elements, " elements at ", hexadecimal(block)})),
                 "; give the block that holds all parameters, or correct the sizes."});
        }
        offsets.push_back(offset);
    }
    return offsets;
}

ZERO_COLD_INLINE std::string uncovered_text(FlatLayout const& layout,
                                            std::span<std::size_t const> offsets,
                                            std::size_t elements) {
    std::vector<std::uint64_t> const begins(offsets.begin(), offsets.end());
    std::size_t covered = 0;
    std::size_t first = 0;
    for (std::size_t const index : order_by(begins)) {
        std::size_t const count = layout.parameter(index).elements;
        covered += count;
        first += first == offsets[index] ? count : 0;
    }
    return covered == elements ? std::string()
                               : text({elements - covered, " of the ", elements,
                                       " elements of adopted_block (they lie in no parameter; the "
                                       "first is element ",
                                       first, ')'});
}

ZERO_COLD_INLINE std::vector<ParameterSpec> specs_of(std::span<AnyParameter const> parameters) {
    std::vector<ParameterSpec> specs;
    for (auto const& parameter : parameters) {
        specs.push_back(parameter.spec);
    }
    return specs;
}

} // namespace ZERO_NAMESPACE::detail
