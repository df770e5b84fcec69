#pragma once

#include "summary.hpp"

#include <cstddef>
#include <cstdio>
#include <string>

namespace gpt {

/// @brief Returns the elements by the formula, as text. The formula excludes control traffic: the
/// norm and the first broadcast.
inline std::string formula_text(zero::Traffic const& formula, zero::CollectiveKind kind) {
    switch (kind) {
    case zero::CollectiveKind::reduce_scatter: return std::to_string(formula.reduce_scatter);
    case zero::CollectiveKind::all_gather: return std::to_string(formula.all_gather);
    case zero::CollectiveKind::all_reduce: return std::to_string(formula.all_reduce);
    case zero::CollectiveKind::broadcast:
    case zero::CollectiveKind::exchange: return "in codes";
    case zero::CollectiveKind::integers: break;
    }
    return "control";
}

/// @brief Prints the bytes of every kind of buffer on every rank: planned before any allocation,
/// and allocated.
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
    if (summary.ranks.front().plan.tier_bytes != 0) {
        std::printf("%-18s", "in a file");
        for (auto const& rank : summary.ranks) {
            std::printf(" %10llu %11s", static_cast<unsigned long long>(rank.plan.tier_bytes), "");
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

/// @brief Prints the reads of each rank from the others, by kind of collective: calls, elements
/// counted and by the formula, bytes.
inline void print_traffic(Summary const& summary) {
    std::printf(
        "\ntraffic of all steps per rank, read from other ranks\n%-5s %-23s %7s %14s %14s %14s\n",
        "rank", "collective", "calls", "elements", "by formula", "bytes");
    for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
        auto const& own = summary.ranks[rank];
        for (std::size_t kind = 0; kind < zero::collective_kinds; ++kind) {
            auto const which = static_cast<zero::CollectiveKind>(kind);
            auto const& count = own.traffic[which];
            if (count.calls != 0) {
                std::printf("%-5zu %-23s %7llu %14llu %14s %14llu\n", rank, name_of(which),
                            static_cast<unsigned long long>(count.calls),
                            static_cast<unsigned long long>(count.elements),
                            formula_text(own.formula, which).c_str(),
                            static_cast<unsigned long long>(count.bytes));
            }
        }
    }
}

/// @brief Prints how the acquisitions of each unit found its parameters, on rank 0. Only stage 3
/// gathers.
inline void print_gathers(Summary const& summary) {
    zero::TraceReport const& trace = summary.trace;
    if (trace.gathers == 0) {
        return;
    }
    std::printf("\ngathers of all steps on rank 0\n%-5s %10s %10s %10s %10s %10s\n", "unit",
                "gathered", "in time", "late", "resident", "dropped");
    auto const row = [](std::string const& name, zero::UnitGathers const& unit) {
        std::printf("%-5s %10llu %10llu %10llu %10llu %10llu\n", name.c_str(),
                    static_cast<unsigned long long>(unit.in_time + unit.late),
                    static_cast<unsigned long long>(unit.in_time),
                    static_cast<unsigned long long>(unit.late),
                    static_cast<unsigned long long>(unit.resident),
                    static_cast<unsigned long long>(unit.dropped));
    };
    for (std::size_t unit = 0; unit < trace.units.size(); ++unit) {
        row(std::to_string(unit), trace.units[unit]);
    }
    row("all", trace.total());
    std::printf("%zu elements were gathered at once, of %zu planned; %llu micro-steps left the "
                "recorded order\n%.2f s\n",
                trace.most_live_elements, summary.ranks.front().leases,
                static_cast<unsigned long long>(trace.changed_orders),
                summary.ranks.front().seconds);
}

/// @brief Prints how much of each rank's communication overlapped with its model, in the recorded
/// steps.
inline void print_hidden(Summary const& summary) {
    std::printf("\ncommunication of the recorded steps\n%-5s %12s %12s %8s\n", "rank", "ms",
                "exposed ms", "hidden");
    for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
        auto const& own = summary.ranks[rank];
        double const hidden = own.communication > 0.0 ? 1.0 - own.exposed / own.communication : 1.0;
        std::printf("%-5zu %12.3f %12.3f %6.1f %%\n", rank, own.communication * 1e3,
                    own.exposed * 1e3, hidden * 100.0);
    }
}

} // namespace gpt
