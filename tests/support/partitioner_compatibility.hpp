#pragma once

// The compatibility table of docs/partitioners.md. Used by a test and by bench/layout.

#include <zero/stage/partitioner_table.hpp>

#include <string>

namespace zero::test {

/// @brief Returns one row per partitioner: stages, collectives, bucketer and adopted block.
inline std::string compatibility_table() {
    auto const yes_or_no = [](bool value) { return std::string(value ? "yes" : "no"); };
    std::string text = "| partitioner | stages | collectives | whole parameters | bucketer | "
                       "adopted block |\n|---|---|---|---|---|---|\n";
    for (PartitionerRow const& row : partitioner_table) {
        std::string stages;
        for (std::size_t stage = 0; stage < row.stages.size(); ++stage) {
            stages += row.stages[stage] ? (stages.empty() ? "" : ", ") + std::to_string(stage) : "";
        }
        text += std::string("| `") + row.name + "` | " + stages + " | "
                + (row.is_even ? "native even" : "grouped uneven") + " | "
                + (row.keeps_matrices && !row.keeps_parameters ? "matrices"
                                                               : yes_or_no(row.keeps_parameters))
                + " | " + (row.chooses_bucketer ? "its own" : "any") + " | "
                + yes_or_no(row.serves_adopted_block) + " |\n";
    }
    return text;
}

} // namespace zero::test
