#pragma once

// The parts of a model that is cut over ranks: what each of them holds, as a configuration of its
// own, and its share of the expected states. Norms and decisions stay those of the whole model.

#include "configuration.hpp"
#include "reference.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace zero::test::oracle {

struct Share {
    Place place;
    std::size_t elements;
};

/// Returns the first parameter with a gradient in each step, or the first of its tiles; the number
/// of parameters if there is none.
inline std::size_t always_used_parameter(Configuration const& c) {
    for (std::size_t parameter = 0; parameter < c.shapes.size(); ++parameter) {
        if (c.shapes[parameter].trainable && c.shapes[parameter].elements != 0) {
            return parameter - c.shapes[parameter].tile;
        }
    }
    return c.shapes.size();
}

/// Returns what a part holds of a parameter, if anything. A parameter is cut over all parts, lies
/// in one of them, or has replicas. Tiles of a parameter stay together, and an expert lies in one.
inline std::optional<Share> share_of(Configuration const& c, std::size_t parameter,
                                     std::size_t part) {
    Shape const& shape = c.shapes[parameter];
    std::size_t const first_tile = parameter - shape.tile;
    std::uint64_t const choice = keyed(c.seed, c.index, Stream::parts, first_tile);
    bool const is_for_all = // a part without a gradient ends the step of all
        !c.has_experts && first_tile == always_used_parameter(c);
    bool const may_share = !c.has_experts && (is_for_all || choice % 3 != 2);
    std::size_t const elements = shape.elements;
    if (may_share && shape.tiles == 1 && elements >= c.parts && choice % 3 != 1) {
        std::size_t const begin = elements * part / c.parts;
        return Share{{parameter, begin, false}, elements * (part + 1) / c.parts - begin};
    }
    std::size_t const chosen = (choice >> 8U) % c.parts;
    if (may_share && shape.trainable && c.parts > 1) { // all, or all but one of three
        bool const is_left_out = !is_for_all && c.parts > 2 && part == chosen;
        return is_left_out ? std::nullopt : std::optional(Share{{parameter, 0, true}, elements});
    }
    return part == chosen ? std::optional(Share{{parameter, 0, false}, elements}) : std::nullopt;
}

/// Returns the configuration of a part.
inline Configuration part_of(Configuration const& whole, std::size_t part) {
    Configuration own = whole;
    own.shapes.clear();
    own.units = 0;
    own.used = always_used_unit(whole);
    for (std::size_t parameter = 0; parameter < whole.shapes.size(); ++parameter) {
        if (auto const share = share_of(whole, parameter, part)) {
            own.shapes.push_back(whole.shapes[parameter]);
            own.shapes.back().elements = share->elements;
            own.places.push_back(share->place);
            own.units = std::max(own.units, own.shapes.back().units.back() + 1);
        }
    }
    own.limits_live = own.limits_live && own.units != 0;
    return own;
}

/// Returns what a part holds of a state. Its report counts its own elements that are not finite.
inline Snapshot part_of(Snapshot const& whole, Configuration const& own) {
    Snapshot snapshot;
    snapshot.step_count = whole.step_count;
    snapshot.scaler = whole.scaler;
    Report& report = snapshot.report = whole.report;
    report.non_finite_count = 0;
    report.first_non_finite = -1;
    std::size_t first_element = 0;
    for (std::size_t parameter = 0; parameter < own.shapes.size(); ++parameter) {
        Place const place = own.places[parameter];
        std::size_t const end = place.begin + own.shapes[parameter].elements;
        auto const add = [&](std::vector<Values>& to, std::vector<Values> const& from) {
            auto const values = from[place.parameter].begin();
            to.emplace_back(values + static_cast<std::ptrdiff_t>(place.begin),
                            values + static_cast<std::ptrdiff_t>(end));
        };
        add(snapshot.parameters, whole.parameters);
        add(snapshot.shards, whole.shards);
        add(snapshot.masters, whole.masters);
        add(snapshot.states[0], whole.states[0]);
        add(snapshot.states[1], whole.states[1]);
        for (Place const& element : whole.report.non_finite) {
            if (element.parameter == place.parameter && element.begin >= place.begin
                && element.begin < end && report.non_finite_count++ == 0) {
                report.first_non_finite =
                    static_cast<std::int64_t>(first_element + element.begin - place.begin);
            }
        }
        first_element += own.shapes[parameter].elements;
    }
    return snapshot;
}

struct Part {
    Configuration configuration;
    History history;
};

/// Returns all parts of a run. Reports count what is not finite in all of them, in each replica.
inline std::vector<Part> parts_of(Configuration const& c, History const& history) {
    std::vector<Part> parts;
    for (std::size_t part = 0; part < c.parts; ++part) {
        parts.push_back({part_of(c, part), {}});
    }
    for (Snapshot const& whole : history.snapshots) {
        std::int64_t non_finite = 0;
        for (Part& part : parts) {
            part.history.snapshots.push_back(part_of(whole, part.configuration));
            non_finite += part.history.snapshots.back().report.non_finite_count;
        }
        for (Part& part : parts) {
            part.history.snapshots.back().report.non_finite_count = non_finite;
        }
    }
    return parts;
}

} // namespace zero::test::oracle
