#pragma once

#include "trainer.hpp"

#include <cstddef>
#include <cstdio>

namespace gpt {

/// @brief Bytes of every kind of buffer on every rank: as planned before anything was allocated, and as allocated.
inline void print_memory(Summary const& summary) {
    std::printf("\nbytes per rank, planned / allocated\n%-18s", "");
    for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
        std::printf("%14s rank %-3zu", "", rank);
    }
    std::printf("\n");
    for (std::size_t kind = 0; kind < zero::buffer_kinds; ++kind) {
        std::printf("%-18s", name_of(static_cast<zero::BufferKind>(kind)));
        for (auto const& rank : summary.ranks) {
            std::printf(" %10zu / %-9zu", rank.plan.rows[kind].bytes(), rank.allocated[kind]);
        }
        std::printf("\n");
    }
    std::printf("%-18s", "together");
    for (auto const& rank : summary.ranks) {
        std::size_t allocated = 0;
        for (std::size_t const bytes : rank.allocated) {
            allocated += bytes;
        }
        std::printf(" %10zu / %-9zu", rank.plan.engine_bytes(), allocated);
    }
    std::printf("\n");
}

/// @brief What each rank read from the others, by kind of collective, and what the formulas say for all ranks together.
inline void print_traffic(Summary const& summary) {
    std::printf("\ntraffic of all steps: calls, elements and bytes read from other ranks\n%-24s", "");
    for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
        std::printf("%22s rank %-3zu", "", rank);
    }
    std::printf("  %16s %16s\n", "elements", "by the formula");
    for (std::size_t kind = 0; kind < zero::collective_kinds; ++kind) {
        auto const which = static_cast<zero::CollectiveKind>(kind);
        std::uint64_t elements = 0;
        std::printf("%-24s", name_of(which));
        for (auto const& rank : summary.ranks) {
            auto const& count = rank.traffic[which];
            elements += count.elements;
            std::printf(" %5llu %11llu %12llu", static_cast<unsigned long long>(count.calls), static_cast<unsigned long long>(count.elements),
                        static_cast<unsigned long long>(count.bytes));
        }
        std::printf("  %16llu", static_cast<unsigned long long>(elements));
        switch (which) {
        case zero::CollectiveKind::reduce_scatter: std::printf(" %16llu\n", static_cast<unsigned long long>(summary.formula.reduce_scatter)); break;
        case zero::CollectiveKind::all_gather: std::printf(" %16llu\n", static_cast<unsigned long long>(summary.formula.all_gather)); break;
        case zero::CollectiveKind::all_reduce: std::printf(" %16llu\n", static_cast<unsigned long long>(summary.formula.all_reduce)); break;
        case zero::CollectiveKind::broadcast:
        case zero::CollectiveKind::integers: std::printf(" %16s\n", "control"); break;
        }
    }
}

} // namespace gpt
