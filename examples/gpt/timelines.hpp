#pragma once

#include "settings.hpp"

#include <zero/core/timeline.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpt {

/// @brief The timelines of the ranks of this process, and the file that they are written to. Ranks
/// that are processes write one file each, with the rank appended to its name.
class Timelines {
public:
    /// @param process the rank of this process; -1: all ranks are threads of it
    Timelines(Settings const& settings, int process) : _path(settings.timeline) {
        int const first = process < 0 ? 0 : process;
        int const last = process < 0 ? settings.world : process + 1;
        for (int rank = first; rank < last && !_path.empty(); ++rank) {
            _timelines.push_back(std::make_unique<zero::Timeline>(rank));
            _timelines.back()->set_recording(false);
        }
        if (process >= 0 && !_path.empty()) {
            _path += '.' + std::to_string(process);
        }
    }

    /// @brief Returns the timeline of a rank of this process; null if none is wanted.
    [[nodiscard]] zero::Timeline* of_rank(int rank) const {
        for (auto const& timeline : _timelines) {
            if (timeline->rank() == rank) {
                return timeline.get();
            }
        }
        return nullptr;
    }

    /// @brief Writes the file, if one is wanted.
    void write() const {
        if (_timelines.empty()) {
            return;
        }
        std::vector<zero::Timeline*> ranks;
        for (auto const& timeline : _timelines) {
            ranks.push_back(timeline.get());
        }
        zero::write_timelines(_path, ranks);
    }

private:
    std::string _path;
    std::vector<std::unique_ptr<zero::Timeline>> _timelines;
};

} // namespace gpt
