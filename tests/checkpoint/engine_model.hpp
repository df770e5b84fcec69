#pragma once

// Engines of the toy model that are trained, saved and loaded.

#include "stage/state_model.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/training_state.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zero::test::engine_model {

using namespace state_model;

/// Returns options under which all stages round alike.
template <class Stage>
typename Stage::Options same_schedule(typename Stage::Options options = {}) {
    options.reduction.schedule = ReductionSchedule::boundary;
    return options;
}

/// Trains the steps [begin, end) of one run.
template <class Stage, class Communicator>
void train(Stage& engine, Communicator const& communicator, std::uint64_t begin,
           std::uint64_t end) {
    for (std::uint64_t step = begin; step < end; ++step) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        if constexpr (Stage::parameter_types == 2) {
            (void)mixed::train<bfloat16, float>(engine, rank);
        } else {
            (void)run_step(engine, rank, step, 2, 0.01, 8, {});
        }
    }
}

} // namespace zero::test::engine_model
