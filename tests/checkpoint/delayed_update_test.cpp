// A checkpoint that is saved while the update of the last step is pending.

#include "stage/delayed_model.hpp"
#include "support/catch.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/offload.hpp>
#include <zero/zero.hpp>

#include <cstdint>
#include <vector>

namespace zero::test::delayed_update_test {

namespace {

using Both =
    Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>, DelayedUpdate>;
template <int N>
using Late = ZeroStage<N, Parameters<bfloat16>, Both>;

} // namespace

TEST_CASE("A run that is saved while an update is pending goes on from the checkpoint with the "
          "same bits") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        auto const run = [&](std::uint64_t begin, bool in_background) {
            auto const directory = folder.path() / "checkpoints";
            return on_ranks<std::vector<std::vector<float>>>(
                1, [&](LoopbackCommunicator& communicator) {
                    typename Late<N>::Options options;
                    options.offload.path = folder.path();
                    options.offload.chunk_bytes = 1500;
                    options.offload.allow_page_cache = true;
                    options.offload.warm_up_steps = 2;
                    Late<N> engine(communicator, registration<bfloat16>(toy_specs()), options);
                    if (begin != 0) {
                        load_checkpoint(engine, directory);
                    }
                    CheckpointSaver saver(engine, directory);
                    for (std::uint64_t step = begin; step < 8; ++step) {
                        engine.begin_step();
                        for (auto const micro_step : engine.micro_steps(1)) {
                            run_micro_step_at(engine, acquired_parameters(engine), 0,
                                              step + micro_step, 1.0F, false);
                        }
                        (void)engine.step(0.01);
                        if (begin == 0 && step == 3) {
                            CHECK(engine.is_update_pending());
                            if (in_background) {
                                saver.start();
                                (void)saver.wait();
                            } else {
                                (void)save_checkpoint(engine, directory);
                            }
                            CHECK_FALSE(engine.is_update_pending());
                        }
                    }
                    return full_parameters(engine);
                })[0];
        };
        for (bool const in_background : {false, true}) {
            auto const expected = run(0, in_background);
            CHECK(run(4, false) == expected);
        }
    });
}

} // namespace zero::test::delayed_update_test
