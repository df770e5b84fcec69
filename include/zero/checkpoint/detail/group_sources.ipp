#pragma once

#include "group_sources.hpp"

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

/// Returns the first setting in which two groups differ, with both values; empty if there is none.
ZERO_COLD_INLINE std::string first_other_setting(ManifestScalars const& scalars, std::uint64_t a,
                                                 std::uint64_t b) {
    std::string found;
    auto const compare = [&](auto const& all) {
        auto const others = entries_under(all, group_prefix(b));
        for (auto const& [name, value] : entries_under(all, group_prefix(a))) {
            auto const other = others.find(name);
            if (found.empty() && (other == others.end() || other->second != value)) {
                found = other == others.end() ? text({name, " ", value, " and none"})
                                              : text({name, " ", value, " and ", other->second});
            }
        }
    };
    compare(scalars.numbers);
    compare(scalars.counts);
    compare(scalars.texts);
    return found;
}

ZERO_COLD_INLINE GroupSources::GroupSources(FlatLayout const& layout,
                                            CheckpointReader const& checkpoint,
                                            ManifestScalars const& own, std::size_t groups)
    : stored(groups) {
    Manifest const& manifest = checkpoint.manifest();
    // One parameter of each pair of groups. Frozen ones decide nothing.
    using Pairs = std::map<std::uint64_t, std::string>;
    std::vector<Pairs> sources(groups);   // by group of the engine: group there, parameter
    std::map<std::uint64_t, Pairs> users; // by group of the checkpoint: group here, parameter
    for (auto const& spec : layout.parameters()) {
        if (auto const index = checkpoint.find(stored_name(spec))) {
            std::uint64_t const source = manifest.parameters[*index].group;
            if (spec.trainable) {
                sources[spec.group].emplace(source, stored_name(spec));
                users[source].emplace(spec.group, stored_name(spec));
            } else if (!stored[spec.group]) {
                stored[spec.group] = source;
            }
        }
    }
    for (std::size_t group = 0; group < groups; ++group) {
        if (sources[group].empty()) {
            continue; // frozen parameters only, or new ones
        }
        auto const& [first, parameter] = *sources[group].begin();
        stored[group] = first;
        for (auto const& [source, other] : sources[group]) {
            std::string const setting = first_other_setting(manifest.scalars, first, source);
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
            std::string const setting = first_other_setting(own, first, group);
            if (!setting.empty() && stored[first] && stored[group]) {
                differences.push_back(
                    text({"groups ", first, " with parameter '", parameter, "' and ", group,
                          " with '", other, "' differ: ", setting, "; both were group ", source,
                          " of the checkpoint and get its settings"}));
            }
        }
    }
}

ZERO_COLD_INLINE void GroupSources::refuse(std::string const& source) const {
    std::string list;
    for (std::string const& difference : differences) {
        list += "\n  " + difference;
    }
    throw_error<CheckpointError>(
        {"zero: the parameter groups of ", source, " are not those of this engine:", list,
         "\nLoadOptions::may_differ accepts that; LoadOptions::settings = false keeps all settings "
         "of the engine."});
}

} // namespace ZERO_NAMESPACE::detail
