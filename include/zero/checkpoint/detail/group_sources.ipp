#pragma once

#include "loaded_scalars.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "plan_manifest.hpp"
#include "scalar_fields.hpp"

#include <map>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// Returns the entries whose name begins with a prefix, without it.
template <class Map>
Map entries_under(Map const& all, std::string const& prefix) {
    Map own;
    for (auto at = all.lower_bound(prefix); at != all.end() && at->first.starts_with(prefix);
         ++at) {
        own.emplace(at->first.substr(prefix.size()), at->second);
    }
    return own;
}

/// Returns all settings in which two groups differ, with both values; empty if there are none.
/// @param between the words between the values
ZERO_COLD_INLINE std::string other_settings(ManifestScalars const& ones, std::uint64_t one,
                                            ManifestScalars const& others, std::uint64_t other,
                                            std::string_view between = " and ") {
    std::string found;
    auto const compare = [&](auto const& of_one, auto const& of_other) {
        auto const values = entries_under(of_other, group_prefix(other));
        for (auto const& [name, value] : entries_under(of_one, group_prefix(one))) {
            auto const at = values.find(name);
            if (at == values.end() || at->second != value) {
                found += text({found.empty() ? "" : ", ", name, " ", value, between});
                found += at == values.end() ? "none" : text({at->second});
            }
        }
    };
    compare(ones.numbers, others.numbers);
    compare(ones.counts, others.counts);
    compare(ones.texts, others.texts);
    return found;
}

ZERO_COLD_INLINE GroupSources::GroupSources(FlatLayout const& layout,
                                            CheckpointReader const& checkpoint,
                                            ManifestScalars const& own, std::size_t groups)
    : stored(groups) {
    Manifest const& manifest = checkpoint.manifest();
    // One parameter of each pair of groups. Frozen ones decide nothing where there are trainable
    // ones.
    using Pairs = std::map<std::uint64_t, std::string>;
    std::vector<Pairs> sources(groups);   // by group of the engine: group there, parameter
    std::vector<Pairs> frozen(groups);    // the same of frozen parameters
    std::map<std::uint64_t, Pairs> users; // by group of the checkpoint: group here, parameter
    std::size_t last = 0;                 // most are in the same order
    for (auto const& spec : layout.parameters()) {
        auto const index = checkpoint.find(stored_name(spec), last);
        last = index.value_or(last);
        ManifestParameter const* const found =
            index ? &manifest.parameters[*index] : checkpoint.find_base(stored_name(spec));
        if (found != nullptr) {
            std::uint64_t const source = found->group;
            if (spec.trainable) {
                sources[spec.group].try_emplace(source, stored_name(spec));
                users[source].try_emplace(spec.group, stored_name(spec));
            } else {
                frozen[spec.group].try_emplace(source, stored_name(spec));
            }
        }
    }
    for (std::size_t group = 0; group < groups; ++group) {
        if (sources[group].empty()) {
            continue; // frozen parameters only, or new ones
        }
        frozen[group].clear();
        auto const& [first, parameter] = *sources[group].begin();
        stored[group] = first;
        for (auto const& [source, other] : sources[group]) {
            std::string const setting =
                other_settings(manifest.scalars, first, manifest.scalars, source);
            if (!setting.empty() && stored[group]) {
                differences.push_back(text({"group ", group, " has parameter '", parameter,
                                            "' of group ", first, " of the checkpoint and '", other,
                                            "' of group ", source, ", which differ: ", setting,
                                            "; the group keeps the settings of the engine"}));
                stored[group].reset();
            }
        }
    }
    for (auto const& [source, pairs] : users) {
        auto const& [first, parameter] = *pairs.begin();
        for (auto const& [group, other] : pairs) {
            std::string const setting = other_settings(own, first, own, group);
            if (!setting.empty() && stored[first] && stored[group]) {
                differences.push_back(
                    text({"groups ", first, " with parameter '", parameter, "' and ", group,
                          " with '", other, "' differ: ", setting, "; both were group ", source,
                          " of the checkpoint and get its settings"}));
            }
        }
    }
    // A group of frozen parameters alone takes settings only if they are certainly its own.
    for (std::size_t group = 0; group < groups; ++group) {
        for (auto const& [source, parameter] : frozen[group]) {
            users[source].emplace(group, parameter);
        }
    }
    for (std::size_t group = 0; group < groups; ++group) {
        if (frozen[group].empty()) {
            continue;
        }
        auto const& [first, parameter] = *frozen[group].begin();
        stored[group] = first;
        for (auto const& [source, other] : frozen[group]) {
            bool is_shared =
                !other_settings(manifest.scalars, first, manifest.scalars, source).empty();
            for (auto const& [user, unused] : users[source]) {
                is_shared = is_shared || !other_settings(own, group, own, user).empty();
            }
            std::string const setting = other_settings(own, group, manifest.scalars, source);
            if (is_shared && !setting.empty() && stored[group]) {
                kept.push_back(text(
                    {"group ", group, " of frozen parameters keeps the settings of the engine: '",
                     other, "' was in group ", source,
                     " of the checkpoint, which was divided or merged, and they differ: ",
                     setting}));
                stored[group].reset();
            }
        }
    }
    for (std::size_t group = 0; group < groups; ++group) {
        std::string const setting =
            stored[group] ? other_settings(own, group, manifest.scalars, *stored[group], " became ")
                          : std::string();
        if (!setting.empty()) {
            replaced.push_back(text({"group ", group, ": ", setting, " of group ", *stored[group],
                                     " of the checkpoint"}));
        }
    }
}

ZERO_COLD_INLINE void GroupSources::refuse(std::string const& source) const {
    std::string list;
    for (std::string const& difference : differences) {
        list += "\n  " + difference;
    }
    throw_error<CheckpointError>({"zero: the parameter groups of ", source,
                                  " are not those of this engine:", list,
                                  "\nLoadOptions::may_regroup accepts that, as does may_differ; "
                                  "LoadOptions::settings = false "
                                  "keeps all settings of the engine."});
}

} // namespace ZERO_NAMESPACE::detail
