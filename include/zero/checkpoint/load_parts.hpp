#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../layout/parameter_spec.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "checkpoint_directory.hpp"
#include "checkpoint_error.hpp"
#include "checkpoint_reader.hpp"
#include "detail/load_state.hpp"
#include "detail/on_every_rank.hpp"
#include "detail/plan_manifest.hpp"
#include "load_options.hpp"
#include "manifest.hpp"

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Adds a scalar of another part. @throws CheckpointError if both have it and differ
template <class Values>
[[gnu::cold]] void join_scalars(Values& all, Values const& part, std::string const& folder) {
    for (auto const& [name, value] : part) {
        if (auto const [at, is_new] = all.emplace(name, value); !is_new && at->second != value) {
            throw_error<CheckpointError>(
                {"zero: '", folder, "' has another '", name,
                 "' than the parts before it; load checkpoints of the same step."});
        }
    }
}

/// @brief The names of the parameters that an engine holds, and whether a part had them.
using HeldNames = std::map<std::string_view, bool>;

/// @brief Adds the parameters of another part that an engine holds, with the paths of their files.
[[gnu::cold]] inline void join_manifest(Manifest& all, Manifest part,
                                        std::filesystem::path const& folder, HeldNames& held) {
    if (all.types.empty()) {
        all.composition = part.composition;
        all.optimizer = part.optimizer;
        all.extras = part.extras;
        all.base_name = part.base_name;
    }
    if (all.optimizer != part.optimizer) {
        throw_error<CheckpointError>({"zero: '", folder.string(), "' was saved with ",
                                      part.optimizer, ", and a part before it with ", all.optimizer,
                                      "."});
    }
    part.scalars.counts.erase("gradient_errors.layout"); // arrays of parts are not loaded
    join_scalars(all.scalars.numbers, part.scalars.numbers, folder.string());
    join_scalars(all.scalars.counts, part.scalars.counts, folder.string());
    join_scalars(all.scalars.texts, part.scalars.texts, folder.string());
    for (auto const member : {&Manifest::parameters, &Manifest::base}) {
        for (ManifestParameter& parameter : part.*member) {
            auto const found = held.find(parameter.name);
            if (found == held.end()) {
                continue;
            }
            if (std::exchange(found->second, true)) {
                throw_error<CheckpointError>(
                    {"zero: parameter '", parameter.name, "' is in '", folder.string(),
                     "' and in a part before it; give each part once, and where experts are "
                     "cut (.model) only those of this rank's number in the cut."});
            }
            parameter.type += all.types.size();
            for (ManifestInterval& interval : parameter.intervals) {
                interval.file += all.files.size();
            }
            (all.*member).push_back(std::move(parameter));
        }
    }
    for (ManifestFile const& file : part.files) {
        all.files.push_back(file);
        all.files.back().name = std::filesystem::absolute(folder / file.name).string();
    }
    all.types.insert(all.types.end(), part.types.begin(), part.types.end());
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Loads the parameters that an engine holds, and their states, from the checkpoints of
/// several parts of a model, by name: experts that were saved on another number of ranks.
/// Collective, between two steps, with no handle held; waits.
///
///     zero::load_parts(experts, parts, {.name = "step-00001000"}); // 4 parts into 2, or into 8
///
/// Step count, loss scaler and settings of the groups are equal in all parts. `LoadReport::arrays`
/// is empty, because each part has arrays of its own. See
/// `load_checkpoint` for the rest.
/// @param parts the directory of each part, as given to `save_checkpoint`; all of them on every
/// rank, of a model that is cut as well (`ExpertsOptions::model`) those of its number in the cut
/// @param options `name` is that of the checkpoint in each part
/// @throws CheckpointError as `load_checkpoint`, and if a parameter is in two parts or scalars
/// differ; InvalidArgument without a name or parts, for rules, and if ranks differ in an option.
/// The engine is unchanged; those of other model ranks may have loaded
template <class Stage>
LoadReport load_parts(Stage& stage, std::span<std::filesystem::path const> parts,
                      LoadOptions const& options) {
    auto const access = detail::access_to(stage);
    if (parts.empty() || options.name.empty()) {
        detail::throw_error<InvalidArgument>(
            {"zero: load_parts() needs ", parts.empty() ? "parts" : "LoadOptions::name",
             "; give the directories of all parts, and the name of one checkpoint in them (rank ",
             access.rank(), ")."});
    }
    access.wait_to_write("load_parts()");
    detail::require_same_load(access, "load_parts()", options);
    LoadReport report;
    report.name = options.name;
    detail::load_state(
        access, parts.front().string(),
        [&](detail::KeepIntervals keep) {
            if (!options.rules.empty()) {
                detail::throw_error<InvalidArgument>(
                    {"zero: load_parts() takes no LoadOptions::rules, because parts have the names "
                     "of the parameters; leave them out (rank ",
                     access.rank(), ")."});
            }
            Manifest all;
            detail::HeldNames held;
            for (ParameterSpec const& spec : access.layout().parameters()) {
                held.emplace(detail::stored_name(spec), false);
            }
            for (std::filesystem::path const& part : parts) {
                auto const folder = CheckpointDirectory(part).complete_path(options.name);
                detail::join_manifest(all, detail::read_manifest(folder, keep), folder, held);
            }
            return CheckpointReader(parts.front(), std::move(all)); // for messages
        },
        options, report);
    return report;
}

} // namespace ZERO_NAMESPACE
