#pragma once

#include "../../comm/detail/optional_operations.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/hash.hpp"
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
#include "remote_files.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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
    /// Returns the first parameter of the layout with a stored name; another one if there is none.
    [[nodiscard]] std::size_t find(std::string const& name) const;

    FlatLayout const* _layout;
    StateTable const* _table;
    mutable std::size_t _next = 0; ///< parameter of the layout that is probably asked for next
    mutable std::vector<std::size_t> _by_name; ///< all, sorted by their stored name; empty: no
                                               ///< parameter was asked for in another order
};

/// @brief Reads the errors of encoded gradients from a checkpoint of any number of ranks.
///
/// W' ranks keep the mean over the W old ones: each takes the errors of every min(W, W')-th of
/// these, times W' / W, divided by the number of ranks that take the same. On as many ranks each
/// takes its own, to the last bit.
template <class Feedback>
class SavedErrors {
public:
    /// @param held what this rank holds, by type; it and the reader must outlive this object
    SavedErrors(CheckpointReader& reader, List<HeldArray> const& held, std::size_t rank,
                std::size_t world) noexcept
        : _reader(&reader), _held(&held), _rank(rank), _world(world) {}

    /// @brief Returns the loss scale that is in the errors; nothing unless they have this form.
    /// @param layout `errors_hash`
    [[nodiscard]] std::optional<float> scale(std::uint64_t layout) const {
        ManifestScalars const& scalars = _reader->manifest().scalars;
        auto const scale = scalars.numbers.find("gradient_errors.scale");
        bool is_same = scalars.counts.at("gradient_errors.layout") == layout
                       && scale != scalars.numbers.end() && scale->second > 0;
        for (std::size_t type = 0; is_same && type < _held->size(); ++type) {
            ManifestExtraArray own = errors_array((*_held)[type]);
            ManifestExtraArray const* const found = find(own);
            own.shape[0] *= found == nullptr ? 0 : found->intervals.size();
            is_same = found != nullptr && !found->intervals.empty() && found->dtype == own.dtype
                      && found->shape == own.shape;
        }
        return is_same ? std::optional(static_cast<float>(scale->second)) : std::nullopt;
    }

    /// @brief Reads the errors of this rank, and stores them unless `copy` is empty.
    /// @return the bytes that were read
    std::uint64_t read(StateTable::Copy copy) const {
        std::uint64_t bytes = 0;
        for (HeldArray const& errors : *_held) {
            ManifestExtraArray const& array = *find(errors_array(errors));
            std::size_t begin = 0; // among the items of a rank
            for (HeldSlice const& slice : errors.slices) {
                auto* to = static_cast<std::byte*>(slice.data);
                for (std::size_t at = 0; at < slice.elements; at += most) {
                    std::size_t const part = errors.bytes(smaller(slice.elements - at, most));
                    Range const items{begin, begin + part / errors.form.item_bytes};
                    auto const values = items_of(array, items, bytes);
                    if (copy) {
                        copy(to, values.data(), part);
                    }
                    to += part;
                    begin = items.end;
                }
            }
        }
        return bytes;
    }

private:
    using S = typename Feedback::Storage;
    static constexpr bool is_float = std::is_same_v<S, float>;
    static constexpr std::size_t item_elements = is_float ? 1 : ops::scaled_block_elements;
    static constexpr std::size_t most = piece_bytes / sizeof(float); ///< elements at a time

    [[nodiscard]] ManifestExtraArray const* find(ManifestExtraArray const& own) const {
        for (ManifestExtraArray const& array : _reader->manifest().arrays) {
            if (array.name == own.name) {
                return &array;
            }
        }
        return nullptr;
    }

    [[nodiscard]] std::vector<std::byte> items_of(ManifestExtraArray const& array, Range items,
                                                  std::uint64_t& bytes) const {
        std::size_t const old = array.intervals.size();
        std::size_t const rows = static_cast<std::size_t>(array.rows()) / old;
        std::size_t const step = smaller(old, _world);
        std::size_t const sharers = (_world - _rank % step + step - 1) / step;
        double const factor = static_cast<double>(_world) / static_cast<double>(old * sharers);
        std::vector<std::byte> all;
        std::vector<float> sum(items.size() * item_elements);
        for (std::size_t rank = _rank % step; rank < old; rank += step) {
            std::size_t const first = rank * rows;
            all = _reader->read_rows(array, first + items.begin, first + items.end).data;
            bytes += all.size();
            if (step == old && factor == 1.0) {
                return all;
            }
            for (std::size_t item = 0; item < items.size(); ++item) {
                float values[item_elements];
                std::byte* const at = all.data() + item * all.size() / items.size();
                if constexpr (is_float) {
                    std::memcpy(values, at, sizeof(float));
                } else {
                    S::decode(reinterpret_cast<std::uint8_t const*>(at), values);
                }
                for (std::size_t i = 0; i < item_elements; ++i) {
                    float& added = sum[item * item_elements + i];
                    added += static_cast<float>(factor) * values[i];
                    values[i] = added;
                }
                if constexpr (is_float) {
                    std::memcpy(at, values, sizeof(float));
                } else {
                    S::encode(values, reinterpret_cast<std::uint8_t*>(at));
                }
            }
        }
        return all;
    }

    CheckpointReader* _reader;
    List<HeldArray> const* _held;
    std::size_t _rank;
    std::size_t _world;
};

/// @brief Requires that ranks load the same checkpoint in the same way; each reads files by itself.
/// Collective; waits. @throws InvalidArgument on every rank; nothing was changed
template <class Access>
[[gnu::cold]] void require_same_load(Access const& access, char const* call,
                                     LoadOptions const& options) {
    require_same_options(access, call,
                         {{"name", Hash().add(std::string_view(options.name)).value()},
                          {"scope", Hash().add(options.scope).value()},
                          ComparedOption::of_value("settings", options.settings ? 1 : 0),
                          ComparedOption::of_value("may_round", options.may_round ? 1 : 0),
                          ComparedOption::of_value("may_differ", options.may_differ ? 1 : 0),
                          ComparedOption::of_value("may_thaw", options.may_thaw ? 1 : 0),
                          ComparedOption::of_value("may_regroup", options.may_regroup ? 1 : 0),
                          ComparedOption::of_value("own_disks", options.own_disks ? 1 : 0)});
}

/// @brief Loads the data of a reader into an idle engine: first checks and, by default, verifies on
/// all ranks, then writes. Collective; waits.
/// @param open called as `open(KeepIntervals)`, returns the reader
/// @param source for messages
/// @param files those that `open` and the reader may read from other disks
template <class Config, class Open>
void load_state(StateAccess<Config> const& access, std::string const& source, Open const& open,
                LoadOptions const& options, LoadReport& report, RemoteFiles* files = nullptr) {
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
    auto const world = static_cast<std::size_t>(access.communicator().size());
    List<HeldArray> const held_errors = access.gradient_errors();
    std::function<std::uint64_t(StateTable::Copy)> read_errors;
    std::optional<float> error_scale; // empty: they begin with 0
    bool has_errors = false;
    auto const places = on_files(
        access, "load the checkpoint",
        [&](OnCaller on_caller) {
            if (options.own_disks && files == nullptr) {
                throw_error<InvalidArgument>({"zero: only load_checkpoint() takes "
                                              "LoadOptions::own_disks; here every rank reads all "
                                              "that it needs from its own disk (rank ",
                                              access.rank(), ")."});
            }
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
                if (!array.name.starts_with(errors_prefix)) {
                    Range const rows = rows_of_rank(array, access.rank(), world);
                    report.arrays[array.name] = reader->read_rows(array, rows.begin, rows.end);
                }
            }
            has_errors =
                scalars && reader->manifest().scalars.counts.contains("gradient_errors.layout");
            if constexpr (keeps_errors<Config>) {
                using Feedback = typename Config::Feedback;
                SavedErrors<Feedback> const saved(*reader, held_errors, access.rank(), world);
                if (has_errors) {
                    error_scale = saved.scale(errors_hash(access.layout(), type_name<Feedback>()));
                }
                read_errors = [saved](StateTable::Copy copy) { return saved.read(copy); };
            }
            on_caller([&] { staging = staging_buffer<StateAccess<Config>>(); });
            if (options.verify_first) {
                plan->verify();
                if (error_scale) {
                    read_errors({});
                }
            }
            return reader->places_hash();
        },
        options.file_time_out, files);
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
                if (error_scale) {
                    report.bytes_needed += read_errors(copy);
                }
                return std::uint64_t{0};
            },
            options.file_time_out, files);
        if (scalars) {
            scalars->set(access);
        }
        access.set_error_scale(error_scale);
        wait_for_collectives(access.communicator(), access.queue());
    });
    access.forget_writes();
    access.publish_written();
    report.extras = reader->manifest().extras;
    report.base = reader->manifest().base_name;
    report.differences = plan->differences();
    report.differences.insert(report.differences.end(), other_base.begin(), other_base.end());
    if (has_errors && !error_scale) {
        report.differences.emplace_back("what the encoding of gradients lost is dropped, because "
                                        "the engine keeps no such errors of the same parameters");
    }
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
    : _layout(&layout), _table(&table) {}

[[gnu::cold]] inline std::size_t NeededIntervals::find(std::string const& name) const {
    std::size_t const count = _layout->parameters().size();
    if (_next < count && stored_name(_layout->parameter(_next)) == name) {
        return _next;
    }
    auto const name_of = [&](std::size_t index) -> std::string const& {
        return stored_name(_layout->parameter(index));
    };
    if (_by_name.empty()) {
        _by_name.resize(count);
        std::iota(_by_name.begin(), _by_name.end(), std::size_t{0});
        std::stable_sort(_by_name.begin(), _by_name.end(),
                         [&](std::size_t a, std::size_t b) { return name_of(a) < name_of(b); });
    }
    auto const found = std::lower_bound(
        _by_name.begin(), _by_name.end(), name,
        [&](std::size_t index, std::string const& wanted) { return name_of(index) < wanted; });
    return found == _by_name.end() ? count : *found;
}

[[gnu::cold]] inline void NeededIntervals::operator()(ManifestParameter& stored) const {
    auto& intervals = stored.intervals;
    std::vector<char> is_needed(intervals.size(), 0);
    // A tile is a parameter of the layout. The tiles of a parameter follow each other, and have its
    // name.
    std::size_t own = find(stored.name);
    for (;
         own < _layout->parameters().size() && stored_name(_layout->parameter(own)) == stored.name;
         ++own) {
        _next = own + 1;
        std::uint64_t const first = _layout->parameter(own).tile.begin;
        for (std::size_t array = 0; array < _table->arrays().size(); ++array) {
            std::size_t at = 0;
            for (HeldSlice const& slice : _table->slices(array, own)) { // ascending
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
