#pragma once

#include "view.hpp"

#include <cstddef>

namespace gpt {

/// @brief The shape of a causal multi-head self-attention over a batch of samples of `context`
/// tokens.
///
/// Rows are tokens, sample after sample. `qkv` holds queries, keys and values side by side, [rows x
/// 3 width]; a head is a range of columns in each third. The probabilities of the forward pass are
/// kept for the backward pass, [batch * heads * context x context].
struct AttentionShape {
    std::size_t batch = 0;
    std::size_t context = 0;
    std::size_t heads = 0;
    std::size_t head_width = 0;

    [[nodiscard]] constexpr std::size_t probability_rows() const noexcept {
        return batch * heads * context;
    }

    /// @brief Returns the rows of a sample and the columns of a head.
    /// @param third in `qkv` 0 for queries, 1 for keys, 2 for values; in other matrices 0
    template <class T>
    [[nodiscard]] View<T> columns_of(View<T> all, std::size_t sample, std::size_t head,
                                     std::size_t third) const noexcept {
        std::size_t const first = (third * heads + head) * head_width;
        return all.slice_rows(sample * context, context).slice_columns(first, head_width);
    }

    template <class T>
    struct Parts {
        View<T> query;
        View<T> key;
        View<T> value;
    };

    template <class T>
    [[nodiscard]] Parts<T> parts(View<T> qkv, std::size_t sample, std::size_t head) const noexcept {
        return {columns_of(qkv, sample, head, 0), columns_of(qkv, sample, head, 1),
                columns_of(qkv, sample, head, 2)};
    }

    /// @brief Returns the rows of one head of a sample among the probabilities.
    template <class T>
    [[nodiscard]] View<T> scores(View<T> probabilities, std::size_t sample,
                                 std::size_t head) const noexcept {
        return probabilities.slice_rows((sample * heads + head) * context, context);
    }
};

} // namespace gpt
