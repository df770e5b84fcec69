#pragma once

#include "settings.hpp"

#include <zero/comm/traffic_count.hpp>

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#if defined(GPT_HAS_CHECKPOINT)
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#endif

namespace gpt {

/// @brief Saves and resumes the training of one rank, as the settings say. Without
/// `zero::checkpoint` it refuses such settings.
template <class Engine, class Communicator>
class Checkpoints {
public:
    Checkpoints(Engine& engine, Communicator& communicator, Settings const& settings)
        : _engine(&engine), _communicator(&communicator), _settings(&settings) {
#if !defined(GPT_HAS_CHECKPOINT)
        if (!(settings.save + settings.resume).empty()) {
            throw std::runtime_error(
                "this program was built without checkpoints; they need nlohmann-json and xxHash");
        }
#endif
    }

    /// @brief Loads the latest checkpoint, if the settings name a directory. Collective.
    /// @return the number of the next step
    std::size_t resume() {
#if defined(GPT_HAS_CHECKPOINT)
        if (!_settings->resume.empty()) {
            auto const report = zero::load_checkpoint(*_engine, _settings->resume);
            if (_communicator->rank() == 0) {
                std::printf("resumed from %s, %llu bytes for rank 0\n", report.name.c_str(),
                            static_cast<unsigned long long>(report.bytes_needed));
            }
            return std::stoul(report.extras.at("next_step"));
        }
#endif
        return 0;
    }

    /// @brief Saves if a checkpoint is due. Collective. @param next the number of the next step
    void save_if_due(std::size_t next, std::size_t end) {
        bool const is_due = _settings->save_every != 0 && next % _settings->save_every == 0;
        if (_settings->save.empty() || (!is_due && next != end)) {
            return;
        }
#if defined(GPT_HAS_CHECKPOINT)
        zero::TrafficCount const before = _communicator->traffic();
        zero::SaveOptions options;
        options.extras = {{"next_step", std::to_string(next)},
                          {"seed", std::to_string(_settings->seed)}};
        options.keep_last = 3;
        std::string const name = zero::save_checkpoint(*_engine, _settings->save, options);
        exclude(before, _communicator->traffic());
        if (_communicator->rank() == 0 && !_settings->is_quiet) {
            std::printf("saved %s\n", name.c_str());
        }
#endif
    }

    /// @brief Returns the traffic so far, without that of checkpoints.
    [[nodiscard]] zero::TrafficCount traffic_of_steps() const {
        zero::TrafficCount all = _communicator->traffic();
        for (std::size_t kind = 0; kind < zero::collective_kinds; ++kind) {
            all.kinds[kind].calls -= _excluded.kinds[kind].calls;
            all.kinds[kind].elements -= _excluded.kinds[kind].elements;
            all.kinds[kind].bytes -= _excluded.kinds[kind].bytes;
        }
        return all;
    }

private:
    void exclude(zero::TrafficCount const& before, zero::TrafficCount const& after) {
        for (std::size_t kind = 0; kind < zero::collective_kinds; ++kind) {
            _excluded.kinds[kind].calls += after.kinds[kind].calls - before.kinds[kind].calls;
            _excluded.kinds[kind].elements +=
                after.kinds[kind].elements - before.kinds[kind].elements;
            _excluded.kinds[kind].bytes += after.kinds[kind].bytes - before.kinds[kind].bytes;
        }
    }

    Engine* _engine;
    Communicator* _communicator;
    Settings const* _settings;
    zero::TrafficCount _excluded;
};

} // namespace gpt
