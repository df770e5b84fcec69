#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../stage/detail/common/gather_on_host.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../checkpoint_error.hpp"
#include "../checkpoint_reader.hpp"
#include "../load_options.hpp"
#include "../manifest.hpp"
#include "file_job.hpp"
#include "load_plan.hpp"
#include "on_every_rank.hpp"
#include "plan_manifest.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// @file
/// @brief The base of a small checkpoint: frozen parameters that it leaves out, and the hashes by
/// which an engine that loads it is known to hold them. A hash is a sum over elements, so it does
/// not depend on who holds which of them.

namespace ZERO_NAMESPACE::detail {

/// @brief Keeps the parameters that `SaveOptions::only` selects, and moves other frozen ones to
/// `Manifest::base`.
/// @param first one number for each parameter of the manifest, of which those of the others go
/// @return why the options fit no checkpoint; empty if they do
[[nodiscard]] std::string keep_only(Manifest& manifest, SaveOptions const& options,
                                    std::vector<std::size_t>& first);

/// @brief Returns a hash of the names of parameters.
[[nodiscard]] std::uint64_t names_hash(std::vector<ManifestParameter> const& parameters);

/// @brief Returns this rank's part of the hash of each parameter's values, which does not depend on
/// their type: the elements of the intervals in one file. O(elements).
[[nodiscard]] std::vector<std::uint64_t>
own_value_hashes(FlatLayout const& layout, StateTable const& table,
                 std::vector<ManifestParameter> const& parameters, std::uint64_t file,
                 Staging const& staging);

/// @brief Returns the sums over the ranks, modulo 2^64. Collective; waits.
template <class Access>
[[gnu::cold]] std::vector<std::uint64_t>
sum_over_ranks(Access const& access, std::vector<std::uint64_t> const& own, char const* what) {
    constexpr std::size_t at_once = 512; // bounds the memory
    std::vector<std::uint64_t> sums(own.size(), 0);
    access.guard([&] {
        for (std::size_t begin = 0; begin < own.size(); begin += at_once) {
            std::size_t const count = smaller(at_once, own.size() - begin);
            auto const first = own.begin() + static_cast<std::ptrdiff_t>(begin);
            auto const all =
                gather_on_host(access, {first, first + static_cast<std::ptrdiff_t>(count)}, what);
            for (std::size_t index = 0; index < all.size(); ++index) {
                sums[begin + index % count] += all[index];
            }
        }
    });
    return sums;
}

/// @brief Returns the hash of each parameter's values. Collective; waits. Memory: a piece of the
/// values, and 4 KiB for each rank.
/// @param parameters with the intervals of this rank at least; equal names on every rank
template <class Access>
[[gnu::cold]] std::vector<std::uint64_t>
value_hashes(Access const& access, StateTable const& table,
             std::vector<ManifestParameter> const& parameters,
             std::chrono::milliseconds file_time_out) {
    std::vector<std::uint64_t> own(parameters.size(), 0);
    Buffer<std::byte> staging; // freed by the caller's thread
    on_files(
        access, "read the parameters of the base",
        [&](OnCaller on_caller) {
            if (access.saves()) { // one of several replicas
                on_caller([&] { staging = staging_buffer<Access>(); });
                auto const copy = [&](void* to, void const* from, std::size_t bytes) {
                    on_caller([&] { access.copy(to, from, bytes); });
                };
                own = own_value_hashes(access.layout(), table, parameters, access.shard_rank(),
                                       {staging.data(), copy});
            }
            return std::uint64_t{0};
        },
        file_time_out);
    return sum_over_ranks(access, own, "hashes of the base");
}

/// @brief Compares the values of an engine with the base of a checkpoint. Collective if it has one.
/// @return the difference that `LoadOptions::may_differ` accepted, if there is one
/// @throws CheckpointError on every rank
template <class Access>
[[gnu::cold]] std::vector<std::string>
compare_base(Access const& access, StateTable const& table, CheckpointReader const& checkpoint,
             std::string const& source, LoadOptions const& options) {
    if (checkpoint.manifest().base.empty()) {
        return {};
    }
    Manifest own; // of the engine
    add_parameters(own, access.layout(),
                   access.rank() == 0 ? std::nullopt : std::optional(access.shard_rank()));
    std::erase_if(own.parameters, [&](ManifestParameter const& parameter) {
        return checkpoint.find_base(parameter.name) == nullptr;
    });
    auto const hashes = value_hashes(access, table, own.parameters, options.file_time_out);
    std::string first;
    std::size_t differing = 0;
    for (std::size_t index = 0; index < hashes.size(); ++index) {
        std::string const& name = own.parameters[index].name;
        if (hashes[index] != checkpoint.find_base(name)->hash && ++differing == 1) {
            first = name;
        }
    }
    if (differing == 0) {
        return {};
    }
    std::string const& base = checkpoint.manifest().base_name;
    std::string const difference =
        text({"the engine holds another base than ", base.empty() ? "that" : "'", base,
              base.empty() ? "" : "'", ", over which the checkpoint was saved: parameter '", first,
              "' has other values",
              differing == 1 ? "" : text({", the first of ", differing, " of ", hashes.size()})});
    if (!options.may_differ) {
        throw_error<CheckpointError>({"zero: the checkpoint '", source,
                                      "' does not fit: ", difference,
                                      ". Initialise the engine from that base, or load it first; "
                                      "LoadOptions::may_differ accepts this one (rank ",
                                      access.rank(), ")."});
    }
    return {difference};
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "base_parameters.ipp"
#endif
