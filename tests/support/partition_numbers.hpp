#pragma once

// The costs of the partitioners on known models, as numbers and as the tables of
// docs/partitioners.md. Used by a test and by bench/layout.

#include "shapes.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/lease_plan.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/per_tensor_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace zero::test {

/// @brief The costs of one partitioner on one model and one world size.
struct PartitionNumbers {
    std::size_t elements = 0;    ///< elements of the model
    std::size_t padding = 0;     ///< elements added by alignment
    std::size_t fullest = 0;     ///< elements that the fullest rank owns, without padding
    std::size_t collectives = 0; ///< reductions per step
    std::size_t leased = 0;      ///< elements of the gradient leases in stages 0 to 2

    [[nodiscard]] double padding_percent() const {
        return 100.0 * static_cast<double>(padding) / static_cast<double>(elements);
    }
    /// @brief Returns the gradient leases as a share of all gradients.
    [[nodiscard]] double leased_percent() const {
        return 100.0 * static_cast<double>(leased) / static_cast<double>(elements);
    }
    /// @brief Returns the elements of the fullest rank, divided by the mean over ranks.
    [[nodiscard]] double imbalance(std::size_t world) const {
        return static_cast<double>(fullest) * static_cast<double>(world)
               / static_cast<double>(elements);
    }
};

/// @brief Counts the costs of a partitioner and a bucketer with default options on a bfloat16
/// model. O(pieces * W).
template <class Partitioner, class Bucketer>
PartitionNumbers partition_numbers(std::vector<ParameterSpec> const& model, std::size_t world) {
    FlatLayout const layout = make_layout<Partitioner, Bucketer>(model, {world, 2, false});
    PartitionNumbers numbers;
    numbers.elements = elements_of(model);
    numbers.padding = layout.padded_elements() - numbers.elements;
    numbers.collectives = layout.trainable_buckets();
    numbers.leased = plan_gradient_leases(layout, true).elements;
    for (std::size_t rank = 0; rank < world; ++rank) {
        std::size_t owned = 0;
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            owned += layout.content(bucket, layout.extent(bucket, rank));
        }
        numbers.fullest = std::max(numbers.fullest, owned);
    }
    return numbers;
}

/// The world sizes of the tables. The column of leases uses the first one.
inline constexpr std::array<std::size_t, 3> table_worlds{8, 64, 1024};

namespace detail {

inline std::string number(double value, int digits) {
    std::array<char, 64> text{};
    (void)std::snprintf(text.data(), text.size(), "%.*f", digits, value);
    return text.data();
}

/// @brief Returns "9", or "9-10" if the number depends on W.
inline std::string range_of(std::vector<PartitionNumbers> const& all,
                            std::size_t PartitionNumbers::*member) {
    std::size_t least = all.front().*member;
    std::size_t most = least;
    for (auto const& numbers : all) {
        least = std::min(least, numbers.*member);
        most = std::max(most, numbers.*member);
    }
    return std::to_string(least) + (least == most ? "" : "-" + std::to_string(most));
}

template <class Partitioner, class Bucketer>
std::string table_row(char const* name, std::vector<ParameterSpec> const& model) {
    std::vector<PartitionNumbers> all;
    std::string padding;
    std::string imbalance;
    for (std::size_t const world : table_worlds) {
        all.push_back(partition_numbers<Partitioner, Bucketer>(model, world));
        padding += " | " + number(all.back().padding_percent(), 3);
        imbalance += " | " + number(all.back().imbalance(world), 2);
    }
    return std::string("| ") + name + " | " + range_of(all, &PartitionNumbers::collectives) + " | "
           + number(all.front().leased_percent(), 1) + padding + imbalance + " |\n";
}

} // namespace detail

/// @brief Returns one row per partitioner: number of collectives, gradient leases in
/// percent for W = 8, then padding in percent and imbalance for each W.
inline std::string partition_table(std::vector<ParameterSpec> const& model) {
    std::string text = "| partitioner | reductions a step | leases %, W = 8";
    std::string rule = "|---|---|---";
    for (char const* column : {"padding %", "fullest / mean"}) {
        for (std::size_t const world : table_worlds) {
            text += std::string(" | ") + column + ", W = " + std::to_string(world);
            rule += "|---";
        }
    }
    return text + " |\n" + rule + "|\n"
           + detail::table_row<ContiguousPartitioner, SizeCappedBucketer>("`ContiguousPartitioner`",
                                                                          model)
           + detail::table_row<PerTensorPartitioner, ParameterBucketer>("`PerTensorPartitioner`",
                                                                        model)
           + detail::table_row<WholeGroupPartitioner, SizeCappedBucketer>("`WholeGroupPartitioner`",
                                                                          model)
           + detail::table_row<DealtGroupPartitioner, SizeCappedBucketer>("`DealtGroupPartitioner`",
                                                                          model)
           + detail::table_row<RoundRobinPartitioner, SizeCappedBucketer>("`RoundRobinPartitioner`",
                                                                          model)
           + detail::table_row<BalancedPartitioner, SizeCappedBucketer>("`BalancedPartitioner`",
                                                                        model)
           + detail::table_row<WholeMatrixPartitioner, SizeCappedBucketer>(
               "`WholeMatrixPartitioner`", model);
}

/// @brief Returns the cost tables of docs/partitioners.md.
inline std::string partition_tables() {
    return "GPT-2 124M, tied head:\n\n" + partition_table(with_matrices(gpt2_124m(), 768))
           + "\nLlama 7B:\n\n" + partition_table(with_matrices(llama_7b(), 4096));
}

} // namespace zero::test
