#pragma once

#include "../../comm/detail/optional_operations.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/type_name.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../stage/detail/state/add_held_states.hpp"
#include "../../stage/detail/state/state_access.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../checkpoint_error.hpp"
#include "../checkpoint_reader.hpp"
#include "../load_options.hpp"
#include "../manifest.hpp"
#include "base_parameters.hpp"
#include "load_plan.hpp"
#include "loaded_scalars.hpp"
#include "on_every_rank.hpp"
#include "plan_manifest.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The intervals of a checkpoint that overlap what a rank holds. As `KeepIntervals` it drops
/// the others.
class NeededIntervals {
public:
    /// @param layout and `table` must outlive this object
    NeededIntervals(FlatLayout const& layout, StateTable const& table);

    void operator()(ManifestParameter& stored) const;

private:
    FlatLayout const* _layout;
    StateTable const* _table;
    std::vector<std::size_t> _by_name; ///< parameters of the layout, sorted by their stored name
};

/// @brief Loads the data of a reader into an idle engine: first checks and, by default, verifies on
/// all ranks, then writes. Collective; waits.
/// @param open called as `open(KeepIntervals)`, returns the reader
/// @param source for messages
template <class Config, class Open>
void load_state(StateAccess<Config> const& access, std::string const& source, Open const& open,
                LoadOptions const& options, LoadReport& report) {
    using Optimizer = typename Config::Optimizer;
    StateTable const table(access.layout(), access.arrays());
    std::vector<std::string> names;
    for (HeldArray const& array : table.arrays()) {
        names.push_back(array_name<Optimizer>(array.form));
    }
    std::optional<CheckpointReader> reader;
    std::optional<LoadPlan> plan;
    std::optional<LoadedScalars<Config>> scalars;
    Buffer<std::byte> staging;
    auto const places = on_files(
        access, "load the checkpoint",
        [&](OnCaller on_caller) {
            reader.emplace(open(NeededIntervals(access.layout(), table)));
            if (options.check_extras) {
                options.check_extras(reader->manifest().extras);
            }
            std::string const optimizer = type_name<Optimizer>();
            std::optional<std::size_t> average;
            if constexpr (requires { Optimizer::average; }) {
                average = Optimizer::average;
            }
            plan.emplace(access.layout(), table, names, optimizer, *reader, options, average);
            if (options.scope == LoadScope::everything) {
                // settings of another optimizer have other names
                bool const takes_settings =
                    options.settings && optimizer == reader->manifest().optimizer;
                on_caller([&] {
                    scalars.emplace(access, *reader, source, takes_settings, options,
                                    plan->lacks_states());
                });
            }
            for (ManifestExtraArray const& array : reader->manifest().arrays) {
                Range const rows = rows_of_rank(
                    array, access.rank(), static_cast<std::size_t>(access.communicator().size()));
                report.arrays[array.name] = reader->read_rows(array, rows.begin, rows.end);
            }
            on_caller([&] { staging = staging_buffer<StateAccess<Config>>(); });
            if (options.verify_first) {
                plan->verify();
            }
            return reader->places_hash();
        },
        options.file_time_out);
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
        if (places[rank] != places[0]) {
            throw_error<CheckpointError>({"zero: ranks 0 and ", rank,
                                          " found other tensors, or have "
                                          "other rules (rank ",
                                          access.rank(), " read '", source,
                                          "'); give the same rules, and copies of one model, on "
                                          "every rank."});
        }
    }
    std::vector<std::string> const other_base =
        compare_base(access, table, *reader, source, options);
    access.guard([&] {
        on_files(
            access, "load its part of the checkpoint",
            [&](OnCaller on_caller) {
                auto const copy = [&](void* to, void const* from, std::size_t bytes) {
                    on_caller([&] { access.copy(to, from, bytes); });
                };
                report.bytes_needed = plan->load(copy, staging.data());
                return std::uint64_t{0};
            },
            options.file_time_out);
        if (scalars) {
            scalars->set(access);
        }
        access.forget_gradient_errors();
        wait_for_collectives(access.communicator(), access.queue());
    });
    access.forget_writes();
    access.publish_written();
    report.extras = reader->manifest().extras;
    report.base = reader->manifest().base_name;
    report.differences = plan->differences();
    report.differences.insert(report.differences.end(), other_base.begin(), other_base.end());
    for (std::size_t parameter = 0; parameter < plan->lacks_states().size(); ++parameter) {
        if (plan->lacks_states()[parameter] != 0) {
            report.without_states.push_back(access.layout().parameter(parameter).name);
        }
    }
    if (scalars) {
        report.differences.insert(report.differences.end(), scalars->differences.begin(),
                                  scalars->differences.end());
        report.replaced_settings = scalars->replaced_settings;
    }
    report.bytes_read = reader->bytes_read();
}

[[gnu::cold]] inline NeededIntervals::NeededIntervals(FlatLayout const& layout,
                                                      StateTable const& table)
    : _layout(&layout), _table(&table), _by_name(layout.parameters().size()) {
    std::iota(_by_name.begin(), _by_name.end(), std::size_t{0});
    std::stable_sort(_by_name.begin(), _by_name.end(), [&](std::size_t a, std::size_t b) {
        return stored_name(layout.parameter(a)) < stored_name(layout.parameter(b));
    });
}

[[gnu::cold]] inline void NeededIntervals::operator()(ManifestParameter& stored) const {
    auto& intervals = stored.intervals;
    std::vector<char> is_needed(intervals.size(), 0);
    auto own = std::lower_bound(_by_name.begin(), _by_name.end(), stored.name,
                                [&](std::size_t index, std::string const& name) {
                                    return stored_name(_layout->parameter(index)) < name;
                                });
    // A tile is a parameter of the layout, and all tiles of a parameter have its name.
    for (; own != _by_name.end() && stored_name(_layout->parameter(*own)) == stored.name; ++own) {
        std::uint64_t const first = _layout->parameter(*own).tile.begin;
        for (std::size_t array = 0; array < _table->arrays().size(); ++array) {
            std::size_t at = 0;
            for (HeldSlice const& slice : _table->slices(array, *own)) { // ascending
                std::uint64_t const begin = first + slice.begin;
                std::uint64_t const end = begin + slice.elements;
                while (at < intervals.size() && intervals[at].end <= begin) {
                    ++at;
                }
                for (std::size_t next = at; next < intervals.size() && intervals[next].begin < end;
                     ++next) {
                    is_needed[next] = 1;
                }
            }
        }
    }
    std::size_t kept = 0;
    for (std::size_t index = 0; index < intervals.size(); ++index) {
        if (is_needed[index] != 0) {
            intervals[kept++] = intervals[index];
        }
    }
    intervals.resize(kept);
}

} // namespace ZERO_NAMESPACE::detail
