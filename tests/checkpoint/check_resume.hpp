#pragma once

#include "engine_model.hpp"
#include "support/catch.hpp"

// A run that is saved and continues in a fresh engine of another stage gives the same bits as one
// that never stopped.

namespace zero::test::engine_model {

inline constexpr int world = 3;

struct Seen {
    Bits straight; ///< state after six steps
    Bits resumed;  ///< state after three steps, a checkpoint and three more
    Bits control;  ///< the same as `resumed`, with a step count that is off by one
    Bits unsaved;  ///< state after six steps without a checkpoint
};

/// Trains steps of the toy model.
struct Train {
    template <class Stage>
    void operator()(Stage& engine, LoopbackCommunicator& communicator, std::uint64_t begin,
                    std::uint64_t end) const {
        train(engine, communicator, begin, end);
    }
};

/// Trains `Stage`, and resumes in `Other`.
template <class Stage, class Other, class Trainer = Train>
void check_resume(typename Stage::Options const& options = {},
                  typename Other::Options const& other_options = {}, Trainer const& run = {}) {
    TemporaryFolder const folder;
    auto const seen = on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
        Seen own;
        {
            Toy<Stage> toy(communicator, same_schedule<Stage>(options));
            run(*toy.engine, communicator, 0, 6);
            own.unsaved = state_of(*toy.engine);
        }
        {
            Toy<Stage> toy(communicator, same_schedule<Stage>(options));
            toy.engine->set_learning_rate(0, 0.5); // settings of a group are part of the state
            toy.engine->set_learning_rate(0, 1.0);
            run(*toy.engine, communicator, 0, 3);
            save_checkpoint(*toy.engine, folder.path());
            run(*toy.engine, communicator, 3, 6);
            own.straight = state_of(*toy.engine);
        }
        for (std::uint64_t const off : {0U, 1U}) {
            Toy<Other> toy(communicator, same_schedule<Other>(other_options));
            toy.engine->set_learning_rate(0, 0.25); // replaced by the checkpoint's
            load_checkpoint(*toy.engine, folder.path());
            toy.engine->set_step_count(toy.engine->step_count() + off);
            run(*toy.engine, communicator, 3, 6);
            (off == 0 ? own.resumed : own.control) = state_of(*toy.engine);
        }
        return own;
    });
    for (Seen const& own : seen) {
        CHECK(own.straight == own.unsaved);
        CHECK(own.resumed == own.straight);
        CHECK(own.control != own.straight);
    }
}

} // namespace zero::test::engine_model
