#pragma once

#include "../core/detail/namespace.hpp"
#include "../layout/piece.hpp"
#include "tensor_entry.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief One line of a table that says in which tensors of another program a parameter is.
///
/// Names may hold `*`, which stands for at least one character, as few as possible. All names of a
/// line hold the same number of them, and the first stands for the same text in each name, and so
/// on. A tensor belongs to the first line that names it; of lines with a `part`, to all. A tensor
/// that no line names is the parameter of its own name.
struct TensorRule {
    std::string parameter{};            ///< its name, such as "block*.qkv.weight"; empty: no
                                        ///< parameter has these tensors, so they are left out
    std::vector<std::string> tensors{}; ///< the names of one tensor, or of several that are joined
                                        ///< in this order
    bool is_transposed = false; ///< tensors of two dimensions are transposed before they are joined
    bool is_by_columns = false; ///< join and cut the second dimension of the parameter, not its
                                ///< first one. Tensors of one dimension have one
    Range part{}; ///< these rows (columns) of what was joined are the parameter; empty: all
};

/// @brief The lines of a table, in the order in which they are tried.
using TensorRules = std::vector<TensorRule>;

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief A rectangle of a parameter, which is seen as a matrix, and its place in a tensor.
struct TensorBlock {
    std::size_t tensor = 0; ///< index into the tensors of a model
    Range rows;             ///< of the parameter
    Range columns;          ///< of the parameter
    std::size_t first = 0;  ///< element of the tensor in the first row and column
    std::size_t stride = 0; ///< elements of the tensor from one row to the next; if it is
                            ///< transposed, from one column to the next
    bool is_transposed = false;
};

/// @brief A parameter as parts of tensors.
struct TensorView {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::string dtype;
    std::size_t columns = 1; ///< of the matrix
    std::vector<TensorBlock> blocks;

    /// @brief Calls `visit(block, first, elements, place, distance)` for consecutive elements of a
    /// tensor. Element `first + i` is element `begin + place + i * distance` of the parameter.
    /// @param range elements of the parameter
    template <class Visitor>
    void for_runs(Range range, Visitor const& visit) const;
};

/// @brief The parameters that a table makes of tensors.
struct TensorViews {
    std::vector<TensorView> parameters;
    std::vector<std::string> problems;  ///< lines that do not fit the tensors
    std::vector<std::string> left_over; ///< elements of tensors that no `part` has
    std::vector<std::string> unmatched; ///< lines that name no tensor, as a misspelt one does
};

/// @brief Applies a table to the tensors of a model, whose names are unique.
/// @throws InvalidArgument for a line that fits no tensors: other numbers of `*`, no tensor
[[nodiscard]] TensorViews apply_rules(TensorRules const& rules,
                                      std::span<TensorEntry const* const> tensors);

/// @brief The tensor as which a parameter is exported.
struct ExportedTensor {
    std::string name;
    bool is_transposed = false; ///< if it has two dimensions

    /// @brief Makes the shape of the parameter that of the tensor.
    void transpose(TensorEntry& tensor) const {
        if (is_transposed && tensor.shape.size() == 2) {
            std::swap(tensor.shape[0], tensor.shape[1]);
        }
    }
};

/// @brief Returns the values of the transposed matrix; the same for other shapes.
[[nodiscard]] std::vector<float> transposed(std::vector<float> values,
                                            std::vector<std::size_t> const& shape);

/// @brief Applies a table in the other direction.
/// @throws InvalidArgument also for a line that joins or cuts tensors
[[nodiscard]] ExportedTensor exported_tensor(TensorRules const& rules,
                                             std::string const& parameter);

/// @brief Matches a name with a pattern, and adds the texts of its `*`; on failure `texts` are as
/// before.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name,
                           std::vector<std::string>& texts);

/// @brief Returns problems as lines; a long list ends with the number of the others.
[[nodiscard]] std::string listed(std::span<std::string const> problems);

template <class Visitor>
void TensorView::for_runs(Range range, Visitor const& visit) const {
    auto const run = [&](TensorBlock const& block, std::size_t row, std::size_t column,
                         std::size_t elements) {
        std::size_t const down = row - block.rows.begin;
        std::size_t const right = column - block.columns.begin;
        visit(
            block,
            block.first
                + (block.is_transposed ? right * block.stride + down : down * block.stride + right),
            elements, row * columns + column - range.begin,
            block.is_transposed ? columns : std::size_t{1});
    };
    // The rows of a column, or of the whole matrix, that begin before an element.
    auto const rows_before = [&](std::size_t element, std::size_t column) {
        return element <= column ? 0 : (element - column + columns - 1) / columns;
    };
    for (TensorBlock const& block : blocks) {
        if (block.is_transposed) {
            for (std::size_t column = block.columns.begin; column < block.columns.end; ++column) {
                Range const rows = intersection(
                    block.rows, {rows_before(range.begin, column), rows_before(range.end, column)});
                if (!rows.is_empty()) {
                    run(block, rows.begin, column, rows.size());
                }
            }
            continue;
        }
        if (block.columns.size() == columns && block.stride == columns) { // without gaps
            Range const part =
                intersection(range, {block.rows.begin * columns, block.rows.end * columns});
            if (!part.is_empty()) {
                visit(block, block.first + part.begin - block.rows.begin * columns, part.size(),
                      part.begin - range.begin, std::size_t{1});
            }
            continue;
        }
        Range const rows =
            intersection(block.rows, {range.begin / columns, rows_before(range.end, 0)});
        for (std::size_t row = rows.begin; row < rows.end; ++row) {
            Range const part = intersection(
                range, {row * columns + block.columns.begin, row * columns + block.columns.end});
            if (!part.is_empty()) {
                run(block, row, part.begin - row * columns, part.size());
            }
        }
    }
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "detail/tensor_rules.ipp"
#endif
